"""What a farm decides, on a cluster that is a list: jobs on their way, nodes left out, losses."""

import pickle

import pytest

from losscli.errors import UnfitError
from losscli.judge.farm import (
    AHEAD,
    NODES,
    PATIENCE,
    WORKERS,
    Farm,
    LostError,
    NodeAnswer,
    Room,
    read_answer,
)
from losscli.judge.job import Job
from losscli.judge.verdict_parts import JudgeReason
from losscli.reasons import Code
from tests.judging import verdict, write
from tests.parameters import naming


class Cluster:
    """Nodes by name, each with what it says of a job; the first that may judges it at once."""

    def __init__(self, nodes=None, cpus=2, gpus=0):
        self.nodes = {"a": right} if nodes is None else nodes
        self.cpus, self.gpus, self.now = cpus, gpus, 0.0
        self.orders, self.shares, self.most = [], [], 0
        self.closed: list[object] | None = None

    def open(self):
        pass

    def room(self, without):
        left = len(self.nodes.keys() - set(without))
        return Room(left, self.cpus * left, self.gpus * left)

    def start(self, order, *, gpu_share, without):
        self.orders.append((order, tuple(without)))
        self.shares.append(gpu_share)
        return len(self.orders) - 1

    def finished(self, tasks, seconds):
        self.most = max(self.most, len(tasks))
        self.now += seconds
        return tasks[:1] if self.nodes else []

    def answer(self, task):
        order, without = self.orders[task]
        node = next(name for name in self.nodes if name not in without)
        said = self.nodes[node](order.parcel.job)
        if isinstance(said, Exception):
            raise said
        known = {"why": said} if isinstance(said, str) else {"verdict": said}
        return NodeAnswer(node, f"host-{node}", **known)

    def close(self, tasks):
        self.closed = list(tasks)


def right(job):
    return verdict(file=job.file, id=job.id, device=job.device)


def quarantined(word):
    reasons = (JudgeReason(Code.DEVICE_UNHEALTHY, "checks", "no answer"),)
    return lambda job: verdict(word, job.file, id=job.id, reasons=reasons)


@pytest.fixture
def jobs(tmp_path):
    def make(count=1, **fields):
        fields = {"device": "cpu"} | fields
        return [Job(write(tmp_path, f"k{n}.py"), id=str(n), **fields) for n in range(count)]

    return make


def run(cluster, jobs, **options):
    found = list(Farm(cluster, **options).run(jobs))
    assert len({verdict.id for verdict in found}) == len(found) == len(jobs)
    assert cluster.closed == []
    return found


class Calls:
    """What is pickled as a call, which whoever reads the bytes would make."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('it was called')",))


NO_ANSWERS = [
    *(b"", b"{", b"[]", b"\xff", b'{"node": 1, "name": "a"}', b'{"name": "a"}', b"[" * 10**5),
    b'{"node": "a", "name": "a", "verdict": {"word": "RIGHT"}}',
    b'{"node": "a", "name": "a", "verdict": {"id": "", "file": "", "word": "FINE"}}',
    *(pickle.dumps(Calls()), ("a", "a", pickle.dumps(Calls())), None),
]


def test_answer_that_is_no_verdict_is_a_lost_job():
    for data in NO_ANSWERS:
        with (
            naming(str(data)[:50]),
            pytest.raises(LostError, match="cannot be read") as caught,
        ):
            read_answer(data)
        assert not caught.value.node
        assert str(caught.value).startswith("its response cannot be read: ")


def test_each_job_has_a_verdict_and_no_more_are_on_their_way_than_there_is_room_for(jobs):
    for cpus, workers, most in ((2, None, AHEAD * 2), (3, None, AHEAD * 3), (30, 4, 4)):
        cluster = Cluster(cpus=cpus)
        found = run(cluster, jobs(40), **({"workers": workers} if workers else {}))
        assert [each.word for each in found] == ["RIGHT"] * 40
        assert cluster.most == most


def test_closing_the_run_ends_what_is_on_its_way(jobs):
    cluster = Cluster(cpus=3)
    verdicts = Farm(cluster).run(jobs(40))
    next(verdicts)
    verdicts.close()
    assert cluster.closed is not None
    assert len(cluster.closed) == AHEAD * 3 - 1


def test_file_that_is_gone_is_a_bad_job_alone(jobs, tmp_path):
    asked = jobs(2)
    (tmp_path / "k0.py").unlink()
    found = {each.id: each for each in run(Cluster(), asked)}
    assert (found["0"].word, found["0"].reasons[0].code) == ("NOT JUDGED", "bad_job")
    assert found["1"].word == "RIGHT"


def losing(times, *, node):
    """Return a node that is lost so many times, or whose worker is, and then judges."""
    left = iter(range(times))

    def judge(job):
        return right(job) if next(left, None) is None else LostError("ended", node=node)

    return judge


def test_lost_job_is_started_again_but_not_too_often(jobs):
    for node, most, text in (
        (False, WORKERS, "its worker was lost 4 times"),
        (True, NODES, "its node was lost 30 times"),
    ):
        cluster = Cluster({"a": losing(most - 1, node=node)})
        assert [each.word for each in run(cluster, jobs())] == ["RIGHT"]
        assert len(cluster.orders) == most
        [found] = run(Cluster({"a": losing(99, node=node)}), jobs())
        (reason,) = found.reasons
        assert (found.word, reason.code) == ("NOT JUDGED", "error")
        assert reason.text == f"{text}, the last time: ended"


def test_job_goes_elsewhere_where_a_node_cannot_judge(jobs):
    notes = []
    cluster = Cluster({"a": lambda job: "it has no C++ compiler", "b": right}, cpus=1)
    assert [each.word for each in run(cluster, jobs(6), notify=notes.append)] == ["RIGHT"] * 6
    assert notes == ["the node host-a judges no more: it has no C++ compiler"]
    assert [without for _, without in cluster.orders][-1] == ("a",)


def test_where_no_node_can_judge_the_run_ends_with_every_reason(jobs):
    nodes = {"a": lambda job: "it has no C++ compiler", "b": lambda job: "it has losscli 0.0"}
    with pytest.raises(UnfitError) as error:
        run(Cluster(nodes), jobs(3))
    assert str(error.value) == (
        "no node of the cluster can judge. host-a: it has no C++ compiler; host-b: it has "
        "losscli 0.0."
    )


def test_node_whose_gpu_did_not_recover_gets_no_more_jobs(jobs):
    cluster = Cluster({"a": quarantined("CRASHED"), "b": right}, cpus=0, gpus=1)
    found = run(cluster, jobs(3, device="cuda"), workers=1)
    assert [each.word for each in found] == ["CRASHED", "RIGHT", "RIGHT"]
    # What was not judged there is judged elsewhere.
    cluster = Cluster({"a": quarantined("NOT JUDGED"), "b": right}, gpus=1)
    assert [each.word for each in run(cluster, jobs(2, device="cuda"))] == ["RIGHT"] * 2


def test_job_for_a_gpu_takes_a_quarter_of_one(jobs):
    for device, gpus, share, asked in (
        ("cpu", 8, 0.0, "cpu"),
        ("cuda", 8, 0.25, "cuda"),
        ("auto", 8, 0.25, "cuda"),
        ("auto", 0, 0.0, "auto"),
    ):
        cluster = Cluster(gpus=gpus)
        run(cluster, jobs(device=device))
        assert (cluster.shares, cluster.orders[0][0].parcel.job.device) == ([share], asked)


def test_job_for_a_gpu_that_is_not_there_is_not_judged(jobs):
    of_one = "cuda:3 is a GPU of one machine. On a cluster, ask for cuda."
    for device, code, text in (
        ("cuda:3", "bad_job", of_one),
        ("cuda", "no_gpu", "no node of the cluster has a GPU"),
    ):
        [found] = run(Cluster(), jobs(device=device))
        (reason,) = found.reasons
        assert (found.word, reason.code, reason.text) == ("NOT JUDGED", code, text)


def test_job_for_any_device_waits_for_a_gpu_that_is_lost(jobs):
    cluster = Cluster(gpus=1)
    verdicts = Farm(cluster, clock=lambda: cluster.now, workers=1).run(jobs(3, device="auto"))
    next(verdicts)
    cluster.gpus, cluster.now = 0, 10.0
    next(verdicts)
    assert cluster.shares == [0.25] * 2


def test_run_ends_where_no_node_has_been_there_for_long(jobs):
    cluster = Cluster(cpus=1)
    verdicts = Farm(cluster, clock=lambda: cluster.now).run(jobs(40))
    next(verdicts)
    cluster.nodes = {}
    with pytest.raises(UnfitError, match="no node of the cluster has been there for 60 s"):
        list(verdicts)
    assert PATIENCE < cluster.now < 2 * PATIENCE
