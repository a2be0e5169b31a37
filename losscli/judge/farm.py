"""Judge many jobs on a cluster: send some ahead, leave out nodes, start lost jobs again."""

import json
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from losscli.errors import UnfitError, UsageError
from losscli.files.record import Record
from losscli.judge.job import Job
from losscli.judge.on_node import THREADS, Order, pack
from losscli.judge.pool import COMMAND, JUDGES_OF_A_GPU, Item
from losscli.judge.verdict import Verdict, not_judged
from losscli.judge.verdict_cache import own_version
from losscli.reasons import Code
from losscli.runs.encoding import RecordError, read_value

AHEAD = 2
"""Jobs sent for each that the cluster judges at once: no judge waits for the driver."""
PATIENCE = 60.0
"""Seconds without any node for a job after which the farm gives up."""
POLL = 0.1
WORKERS, NODES = 4, 30
"""Lost workers, and lost nodes, after which a job is not judged. A candidate may end its worker;
nodes come and go by themselves."""


@dataclass(frozen=True)
class Room:
    """The nodes that can judge: those with at least one core."""

    nodes: int
    cpus: int
    gpus: int


class NodeAnswer(Record, frozen=True):
    """A node's answer to a job: the verdict, or why it cannot judge."""

    node: str
    name: str
    verdict: Verdict | None = None
    why: str = ""


def read_answer(data: object) -> NodeAnswer:
    """Return a node's answer from its JSON; LostError if it is invalid."""
    try:
        if not isinstance(data, bytes):
            raise RecordError(f"expected bytes, got {type(data).__name__}")
        return read_value(NodeAnswer, json.loads(data))
    except (RecordError, ValueError, RecursionError) as error:
        raise LostError(f"its response cannot be read: {error}", node=False) from None


class LostError(Exception):
    """The worker that judged was lost, alone or with its node."""

    def __init__(self, why: str, *, node: bool) -> None:
        super().__init__(why)
        self.node = node


class Cluster(Protocol):
    """Starts jobs on nodes; it identifies a task by any object."""

    def open(self) -> None:
        """Join the cluster; UnfitError if it does not answer."""

    def room(self, without: Collection[str]) -> Room:
        """Return what the nodes have, except those in ``without``."""

    def start(self, order: Order, *, gpu_share: float, without: Collection[str]) -> object:
        """Start a job on any node except those in ``without``, with a share of a GPU."""

    def finished(self, tasks: Sequence[object], seconds: float) -> Sequence[object]:
        """Return the finished or lost tasks; wait up to ``seconds`` for one."""

    def answer(self, task: object) -> NodeAnswer:
        """Return the answer of a finished task; LostError if its worker or node was lost."""

    def close(self, tasks: Iterable[object]) -> None:
        """End unfinished tasks and leave the cluster."""


class Farm:
    """A pool of judges on the nodes of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        workers: int | None = None,
        cached: bool = True,
        notify: Callable[[str], None] = lambda note: None,
        command: Sequence[str] = COMMAND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``workers``: most jobs at once. ``cached``: whether nodes use their verdict caches."""
        self._cluster, self._workers, self._notify, self._clock = cluster, workers, notify, clock
        self._cached, self._command = cached, tuple(command)
        self._left_out: dict[str, str] = {}
        """Nodes that get no more jobs, and why."""
        self._running: dict[object, tuple[Job, bool]] = {}
        """The job of each task, and whether it is on a GPU."""
        self._losses: dict[str, Counter[bool]] = {}
        """The numbers of lost workers and nodes, by the job's id."""
        self._room: tuple[float, Room] | None = None
        self._had_gpus = False
        self._seen = {False: clock(), True: clock()}
        """When a node without a GPU was last seen, and one with a GPU."""

    def run(self, jobs: Iterable[Item]) -> Generator[Verdict, None, None]:
        """See :meth:`losscli.judge.pool.JudgePool.run`."""
        intake, running = _Intake(jobs), self._running
        try:
            self._cluster.open()
            while running or not intake.over:
                room = self._look()
                most = self._workers or AHEAD * (room.cpus + JUDGES_OF_A_GPU * room.gpus)
                for item in intake.take(most - len(running), wait=not running):
                    yield from self._place(item)
                for task in self._cluster.finished(list(running), POLL) if running else ():
                    yield from self._place(self._take(running.pop(task)[0], task))
                self._expect_nodes()
        finally:
            self._cluster.close(list(running))

    def _place(self, item: Item) -> Iterator[Verdict]:
        if isinstance(item, Verdict):
            yield item
            return
        gpu = self._wants_gpu(item)
        if isinstance(gpu, Verdict):
            yield gpu
            return
        how = own_version(), self._command, self._cached, os.environ.get(THREADS)
        share = 1 / JUDGES_OF_A_GPU if gpu else 0.0
        try:
            order = Order(pack(replace(item, device="cuda") if gpu else item), *how)
            task = self._cluster.start(order, gpu_share=share, without=tuple(self._left_out))
            self._running[task] = item, gpu
        except (UsageError, OSError) as error:
            yield not_judged(item, Code.BAD_JOB, str(error))

    def _wants_gpu(self, job: Job) -> bool | Verdict:
        """Tell whether a job is for a GPU; the verdict where it can get none."""
        if job.device == "cpu":
            return False
        if job.device not in ("auto", "cuda"):
            text = f"{job.device} is a GPU of one machine. On a cluster, ask for cuda."
            return not_judged(job, Code.BAD_JOB, text)
        self._look()
        if job.device == "cuda" and not self._had_gpus:
            return not_judged(job, Code.NO_GPU, "no node of the cluster has a GPU")
        return self._had_gpus  # one that is lost may come back

    def _take(self, job: Job, task: object) -> Verdict | Job:
        """Return the verdict of a task; the job if another node has to judge it."""
        try:
            answer = self._cluster.answer(task)
        except LostError as error:
            return self._lost(job, error)
        self._losses.pop(job.id, None)
        verdict = answer.verdict
        if verdict is None:
            self._leave_out(answer, answer.why)
            return job
        if Code.DEVICE_UNHEALTHY in verdict.codes:
            self._leave_out(answer, f"a GPU of it did not recover from {verdict.file}")
            if verdict.word == "NOT JUDGED":
                return job
        return verdict

    def _lost(self, job: Job, error: LostError) -> Verdict | Job:
        losses = self._losses.setdefault(job.id, Counter())
        losses[error.node] += 1
        if losses[error.node] < (NODES if error.node else WORKERS):
            return job
        what = "node" if error.node else "worker"
        text = f"its {what} was lost {losses[error.node]} times, the last time: {error}"
        return not_judged(job, Code.ERROR, text)

    def _leave_out(self, answer: NodeAnswer, why: str) -> None:
        """Give a node no more jobs; UnfitError if it was the last one."""
        if answer.node not in self._left_out:
            self._left_out[answer.node] = f"{answer.name}: {why}"
            self._notify(f"the node {answer.name} judges no more: {why}")
            self._room = None
        if not self._look().nodes:
            every = "; ".join(self._left_out.values())
            raise UnfitError(f"no node of the cluster can judge. {every}.")

    def _look(self) -> Room:
        now = self._clock()
        if self._room is None or now - self._room[0] >= 5.0:  # nodes come and go
            self._room = now, self._cluster.room(tuple(self._left_out))
            self._had_gpus |= self._room[1].gpus > 0
        return self._room[1]

    def _expect_nodes(self) -> None:
        """Raise UnfitError where jobs have waited too long for a node."""
        room, now = self._look(), self._clock()
        wanted = {gpu for _, gpu in self._running.values()}
        for gpu, there in ((False, room.nodes), (True, room.gpus)):
            if there or gpu not in wanted:
                self._seen[gpu] = now
            elif now - self._seen[gpu] > PATIENCE:
                what = "node with a GPU" if gpu else "node"
                raise UnfitError(f"no {what} of the cluster has been there for {PATIENCE:g} s.")


class _Intake:
    """Reads jobs in a thread, since the next one may arrive late."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._queue: queue.Queue[Item | BaseException | None] = queue.Queue(maxsize=1)
        self.over = False
        threading.Thread(target=self._read, args=(items,), daemon=True).start()

    def take(self, most: int, *, wait: bool) -> Iterator[Item]:
        """Yield up to ``most`` items that are there; ``wait`` for the first one."""
        while most > 0 and not self.over:
            try:
                item = self._queue.get(timeout=POLL if wait else 0.02)  # one may be being read
            except queue.Empty:
                return
            if isinstance(item, BaseException):
                raise item
            if item is None:
                self.over = True
                return
            most -= isinstance(item, Job)
            yield item

    def _read(self, items: Iterable[Item]) -> None:
        try:
            for item in items:
                self._queue.put(item)
            self._queue.put(None)
        except BaseException as error:
            self._queue.put(error)
