"""Processes that losscli starts and talks to, and the lock that processes take turns by.

:class:`Process` starts one, whose module takes the other end of the channel by :func:`to_parent`.
Values are pickled, but for the sandbox's workers, whose bytes are not to be believed.
"""

from losscli.processes.channel import Channel
from losscli.processes.child import end_with_parent, to_parent
from losscli.processes.process import Process, how_ended

__all__ = ["Channel", "Process", "end_with_parent", "how_ended", "to_parent"]
