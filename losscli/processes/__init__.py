"""Processes that losscli starts and talks to.

:class:`Process` starts one, whose module takes the other end of the channel by :func:`to_parent`.
A message is bytes of any encoding; only the sandbox's are from a process that must not be believed.
"""

from losscli.processes.channel import Channel
from losscli.processes.child import end_with_parent, to_parent
from losscli.processes.process import Process, how_ended

__all__ = ["Channel", "Process", "end_with_parent", "how_ended", "to_parent"]
