"""Which GPU of this machine a job is judged on, and which GPUs are used no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from losscli.judge.job import Job
from losscli.judge.verdict import Verdict, not_judged
from losscli.reasons import Code

_ANY_GPU = ("auto", "cuda")


class Gpus:
    """Assigns GPUs in turn, and takes those out of use that did not recover from a kernel."""

    def __init__(self, names: Sequence[str], notify: Callable[[str], None]) -> None:
        self._names, self._notify = list(names), notify
        self._broken: dict[str, None] = {}
        self._next, self._lock = 0, threading.Lock()

    def assign(self, job: Job) -> Job | Verdict:
        """Return the job with a GPU of its own, or the verdict that there is none left."""
        with self._lock:
            if job.device in self._broken:
                return not_judged(
                    job, Code.QUARANTINED, f"{job.device} did not recover from a kernel"
                )
            if job.device not in _ANY_GPU or not self._names:
                return job
            left = [name for name in self._names if name not in self._broken]
            if not left:
                return not_judged(job, Code.QUARANTINED, "no GPU recovered from the kernels before")
            name = left[self._next % len(left)]
            self._next += 1
            return replace(job, device=name)

    def look_at(self, verdict: Verdict) -> None:
        """Put the GPU of a verdict in quarantine if it says so."""
        if not any(reason.code == Code.QUARANTINED for reason in verdict.reasons):
            return
        with self._lock:
            new = verdict.device not in self._broken
            self._broken[verdict.device] = None
        if new:
            self._notify(
                f"{verdict.device} did not recover from {verdict.file} and is judged on no more"
            )
