"""Processes that losscli starts and talks to, and locks."""

from losscli.processes.channel import Channel as Channel
from losscli.processes.process import Process as Process
from losscli.processes.process import end_with_parent as end_with_parent
from losscli.processes.process import how_ended as how_ended
from losscli.processes.process import to_parent as to_parent
