"""Processes that losscli starts and talks to, and locks between them.

:class:`Process` starts one; its module takes the other end of the channel with :func:`to_parent`.
Values are pickled, except for untrusted sandbox workers.
"""

from losscli.processes.channel import Channel
from losscli.processes.child import end_with_parent, to_parent
from losscli.processes.process import Process, how_ended

__all__ = ["Channel", "Process", "end_with_parent", "how_ended", "to_parent"]
