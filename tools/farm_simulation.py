"""Simulates a farm of many nodes with 8 GPUs each: the farm's own code on a simulated cluster.

`python -m tools.farm_simulation verdicts.jsonl` takes the stages' times from real verdicts and
prints how well 1, 8 and 64 nodes are used, with and without a node killed every minute. It runs the
real `losscli.judge.farm`. It simulates Ray (a job starts on the node with the most room, on its
least used GPU) and each GPU's lock of `device_lock`.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from losscli.judge.farm import Farm, LostError, NodeAnswer, Room
from losscli.judge.job import Job
from losscli.judge.pool import JUDGES_OF_A_GPU
from losscli.judge.verdict import Verdict

GPUS = 8
"""GPUs of a node."""
START_SECONDS = 10.0
"""The first job of a judge: a worker of Ray starts, and torch is imported twice."""
DISPATCH_SECONDS = 0.05
"""From a free place until the next job begins there: files are sent and written."""
NOTICE_SECONDS = 30.0
"""Until Ray gives up a node that does not answer."""
DOWN_SECONDS = 120.0
"""Until a killed node is back, without any process."""


@dataclass(frozen=True)
class Stages:
    """The seconds of a job: sharing the GPU's lock to build and check, and holding it alone."""

    shared: float
    alone: float

    @property
    def least(self) -> float:
        """The time on a GPU if no judge ever waits."""
        return self.alone + self.shared / JUDGES_OF_A_GPU


@dataclass
class Task:
    job: Job
    stages: Stages
    place: Gpu | None = None
    lost: bool = False


@dataclass
class Gpu:
    """A GPU with its lock, which waiting jobs get in turn, as at the turnstile."""

    node: Node
    running: list[Task] = field(default_factory=list)
    warm: int = 0
    """Judges that have started."""
    waiting: deque[tuple[Task, bool]] = field(default_factory=deque)
    """Who waits for the lock, and whether to have it alone."""
    sharing: int = 0
    alone: bool = False


@dataclass
class Node:
    name: str
    gpus: list[Gpu] = field(default_factory=list)
    is_up: bool = True


class SimulatedCluster:
    """A :class:`losscli.judge.farm.Cluster` whose time passes from event to event."""

    def __init__(
        self, nodes: int, stages_of: Callable[[Job], Stages], *, gpus: int = GPUS,
        kill_every: float = 0.0, seed: int = 0,
    ) -> None:  # fmt: skip
        self.now = 0.0
        self.kills = 0
        self._stages_of, self._kill_every = stages_of, kill_every
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._nodes = [Node(str(number)) for number in range(nodes)]
        for node in self._nodes:
            node.gpus = [Gpu(node) for _ in range(gpus)]
        self._tasks: dict[int, Task] = {}
        self._pending: deque[Task] = deque()
        self._done: deque[int] = deque()
        self._ids: dict[int, int] = {}
        if kill_every:
            self._later(kill_every, self._kill)

    def open(self) -> None: ...

    def room(self, without: Iterable[str]) -> Room:
        up = [node for node in self._nodes if node.is_up and node.name not in without]
        gpus = sum(len(node.gpus) for node in up)
        return Room(len(up), 0, gpus)

    def start(self, order, *, gpu_share: float, without: Iterable[str]) -> object:
        assert gpu_share == 1 / JUDGES_OF_A_GPU
        job = order.parcel.job
        task, number = Task(job, self._stages_of(job)), len(self._tasks)
        self._tasks[number], self._ids[id(task)] = task, number
        self._pending.append(task)
        self._fill()
        return number

    def finished(self, tasks: Sequence[object], seconds: float) -> Sequence[object]:
        while not self._done:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return [self._done.popleft()]

    def answer(self, task: object) -> NodeAnswer:
        assert isinstance(task, int)
        found = self._tasks[task]
        if found.lost:
            raise LostError("its node was killed", node=True)
        assert found.place
        name = found.place.node.name
        verdict = Verdict(found.job.id, found.job.file, "RIGHT", "mse", "cuda:0", machine="a GPU")
        return NodeAnswer(name, name, verdict)

    def close(self, tasks: Iterable[object]) -> None:
        assert list(tasks) == []

    def _later(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._number), event))

    def _fill(self) -> None:
        """Start pending tasks where there is room."""
        while self._pending:
            node = max((n for n in self._nodes if n.is_up), key=_free, default=None)
            if node is None or not _free(node):
                return
            gpu = max((g for g in node.gpus if _left(g)), key=lambda g: len(g.running))
            self._begin(self._pending.popleft(), gpu)

    def _begin(self, task: Task, gpu: Gpu) -> None:
        task.place = gpu
        gpu.running.append(task)
        delay = DISPATCH_SECONDS
        if len(gpu.running) > gpu.warm:
            gpu.warm += 1
            delay += START_SECONDS
        self._if_there(delay, task, lambda: self._wait(task, alone=False))

    def _if_there(self, seconds: float, task: Task, event: Callable[[], None]) -> None:
        """Do something to a task unless it is lost before."""
        self._later(seconds, lambda: None if task.lost else event())

    def _wait(self, task: Task, *, alone: bool) -> None:
        assert task.place
        task.place.waiting.append((task, alone))
        self._pass(task.place)

    def _pass(self, gpu: Gpu) -> None:
        """Give the lock to those whose turn it is."""
        while gpu.waiting and not gpu.alone:
            task, alone = gpu.waiting[0]
            if alone and gpu.sharing:
                return
            gpu.waiting.popleft()
            if alone:
                gpu.alone = True
            else:
                gpu.sharing += 1
            seconds = task.stages.alone if alone else task.stages.shared
            event = self._timed if alone else self._checked
            self._if_there(seconds, task, partial(event, task))

    def _checked(self, task: Task) -> None:
        assert task.place
        task.place.sharing -= 1
        self._wait(task, alone=True)

    def _timed(self, task: Task) -> None:
        assert task.place
        task.place.alone = False
        task.place.running.remove(task)
        self._done.append(self._ids[id(task)])
        self._pass(task.place)
        self._fill()

    def _kill(self) -> None:
        """Kill a node with all that runs there; it comes back."""
        node = self._random.choice([node for node in self._nodes if node.is_up])
        self.kills += 1
        node.is_up = False
        lost = [task for gpu in node.gpus for task in gpu.running]
        node.gpus = [Gpu(node) for _ in node.gpus]
        for task in lost:
            task.lost = True
            self._later(NOTICE_SECONDS, partial(self._done.append, self._ids[id(task)]))
        self._later(DOWN_SECONDS, lambda: self._come_back(node))
        self._later(self._kill_every, self._kill)

    def _come_back(self, node: Node) -> None:
        node.is_up = True
        self._fill()


def _left(gpu: Gpu) -> int:
    return JUDGES_OF_A_GPU - len(gpu.running)


def _free(node: Node) -> int:
    return sum(map(_left, node.gpus))


@dataclass(frozen=True)
class Found:
    seconds: float
    least: float
    """Seconds that the GPUs would take if no judge ever waited for another, or for a job."""
    verdicts: int
    lost: int
    """Verdicts NOT JUDGED."""
    kills: int

    @property
    def used(self) -> float:
        """The fraction of time in which a GPU times alone or all its judges work."""
        return self.least / self.seconds


def simulate(
    count: int, nodes: int, stages: Sequence[Stages], *, gpus: int = GPUS,
    kill_every: float = 0.0, seed: int = 0,
) -> Found:  # fmt: skip
    """Judge so many candidates, each as long as a random given one."""
    chosen = random.Random(seed).choices(stages, k=count)
    cluster = SimulatedCluster(
        nodes, lambda job: chosen[int(job.id)], gpus=gpus, kill_every=kill_every, seed=seed
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "k.py")
        path.write_text("def mse_loss(input, target): ...\n")
        jobs = (Job(str(path), id=str(number), device="cuda") for number in range(count))
        verdicts = list(Farm(cluster, clock=lambda: cluster.now).run(jobs))
    assert sorted(int(verdict.id) for verdict in verdicts) == list(range(count))
    lost = sum(verdict.word == "NOT JUDGED" for verdict in verdicts)
    least = sum(each.least for each in chosen) / (nodes * gpus)
    return Found(cluster.now, least, len(verdicts), lost, cluster.kills)


def read_stages(path: Path) -> list[Stages]:
    """Return the times of verdicts on files that were timed."""
    found = []
    for line in path.read_text().splitlines():
        seconds = json.loads(line)["seconds"]
        shared = sum(seconds.get(name, 0.0) for name in ("parse", "build", "small", "checks"))
        found.append(Stages(shared, seconds.get("time", 0.0)))
    return found


def main() -> None:
    """Print a row for each number of nodes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verdicts", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    given = parser.parse_args()
    stages = read_stages(given.verdicts)
    shared, alone = (sorted(getattr(s, name) for s in stages) for name in ("shared", "alone"))
    middle = len(stages) // 2
    print(
        f"{len(stages)} verdicts: builds and checks {shared[0]:.1f} to {shared[-1]:.1f} s, median "
        f"{shared[middle]:.1f}; times {alone[0]:.1f} to {alone[-1]:.1f} s, {alone[middle]:.1f}"
    )
    one = simulate(given.count // GPUS, 1, stages, gpus=1)
    rate = one.verdicts / one.seconds
    print("nodes  killed  hours  of one GPU's speed  GPUs used  verdicts  not judged")
    for nodes, kill_every in itertools.product((1, 8, 64), (0.0, 60.0)):
        if nodes == 1 and kill_every:
            continue  # nothing would ever be finished
        found = simulate(given.count, nodes, stages, kill_every=kill_every)
        speed = found.verdicts / found.seconds / (rate * nodes * GPUS)
        print(
            f"{nodes:5}  {found.kills:6}  {found.seconds / 3600:5.2f}  {speed:18.1%}  "
            f"{found.used:9.1%}  {found.verdicts:8}  {found.lost:10}"
        )


if __name__ == "__main__":
    main()
