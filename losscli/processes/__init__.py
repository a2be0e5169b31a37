"""Processes that losscli starts and talks to, and locks between them.

:class:`Process` starts one; its module takes the other end of the channel with :func:`to_parent`.
Values are pickled, except for untrusted sandbox workers.
"""

from losscli.processes.channel import Channel as Channel
from losscli.processes.process import Process as Process
from losscli.processes.process import end_with_parent as end_with_parent
from losscli.processes.process import how_ended as how_ended
from losscli.processes.process import to_parent as to_parent
