import itertools
import queue
import threading

import pytest

from losscli.judge.farm import Farm
from losscli.judge.job import Job
from losscli.judge.pool import LocalPool
from losscli.judge.verdict import not_judged
from losscli.reasons import Code
from tests.judging import COMMAND, ROOT, is_there, judge_here, wait_for, write
from tests.parameters import SLOW
from tests.test_judge_farm import Cluster


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """Return a function that makes a job of what each file says."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FAKE_JUDGE_LOG", str(tmp_path / "log"))

    numbers = itertools.count()

    def make(*says, **fields):
        named = [(f"{next(numbers)} {each}", each) for each in says]
        return [Job(file=write(tmp_path, f"k{id[0]}.py", s), id=id, **fields) for id, s in named]

    return make


@pytest.fixture
def log(tmp_path):
    """Return a function that reads which process judged each job."""

    def read():
        lines = (tmp_path / "log").read_text().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines)

    return read


def run(jobs, workers=2, **options):
    verdicts = list(LocalPool(workers, command=COMMAND, **options).run(jobs))
    found = {verdict.id: verdict for verdict in verdicts}
    assert len(found) == len(verdicts)
    return found


@pytest.fixture
def _here(monkeypatch):
    judge_here(monkeypatch)


def test_one_process_judges_job_after_job(jobs, log):
    run(jobs(*["RIGHT"] * 4), workers=1)
    assert len(set(log().values())) == 1


FAILURES = {
    "segfault": "the process that judged it ended by SIGSEGV",
    "exit": "the process that judged it ended with exit code 0",
    "raise": "losscli itself failed: ValueError: a fault of the judge",
    "unfit": "there is no memory.",
}


def test_judge_that_fails_fails_its_own_job_alone(jobs, log):
    found = run(jobs(*(each for says in FAILURES for each in ("RIGHT", says))), workers=1)
    for key, verdict in found.items():
        if says := FAILURES.get(key.partition(" ")[2]):
            assert (verdict.word, verdict.reasons[0].code) == ("NOT JUDGED", "error")
            assert verdict.reasons[0].text == says
        else:
            assert verdict.word == "RIGHT"
    assert len(found) == 2 * len(FAILURES)
    processes = [log()[f"{2 * number} RIGHT"] for number in range(len(FAILURES))]
    assert len({*processes}) == len(FAILURES)


def test_output_of_a_candidate_does_not_mix_with_verdicts_and_notes_name_the_file(jobs, capfd):
    found = run(jobs("print", "RIGHT", "notes"))
    assert [each.word for each in found.values()] == ["RIGHT"] * 3
    assert "k2.py: told\n" in capfd.readouterr().err


@SLOW
@pytest.mark.parametrize(("workers", "untimed"), [(2, "passive"), (1, "its own")])
def test_threads_sleep_beside_other_workers_unless_a_job_is_timed(
    jobs, capfd, monkeypatch, workers, untimed
):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    for timed, policy in ((False, untimed), (True, "its own")):
        run(jobs("policy", timed=timed), workers=workers)
        assert capfd.readouterr().err.endswith(f": {policy}\n")


def test_a_process_judges_no_timed_job_after_untimed_ones(jobs, log, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    pool = LocalPool(2, command=COMMAND)
    asked = queue.Queue()
    verdicts = pool.run(iter(asked.get, None))
    for timed in (False, True):
        for job in jobs("RIGHT", "RIGHT", timed=timed):
            asked.put(job)
        next(verdicts), next(verdicts)
    asked.put(None)
    assert not list(verdicts)
    before, after = ({log()[f"{number} RIGHT"] for number in pair} for pair in ((0, 1), (2, 3)))
    assert before.isdisjoint(after)


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize("engine", [lambda: LocalPool(2), lambda: Farm(Cluster())])
def test_verdicts_come_while_the_next_job_is_awaited_and_others_are_passed_on(jobs, engine):
    asked = queue.Queue()
    [first, second] = jobs("RIGHT", "WRONG")
    broken = not_judged(Job("x.py", id="x"), Code.BAD_JOB, "no.")
    verdicts = engine().run(iter(asked.get, None))
    for each in (first, broken, second):
        asked.put(each)
        found = next(verdicts)
        assert found.id == each.id
        assert found == broken or each is not broken
    asked.put(None)
    assert list(verdicts) == []

    def broken_jobs():
        yield from jobs("RIGHT")
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(engine().run(broken_jobs()))


def test_closing_the_run_ends_the_processes(jobs, log):
    verdicts = LocalPool(3, command=COMMAND, grace=5).run(jobs("RIGHT", "slow", "slow"))
    next(verdicts)
    wait_for(lambda: len(log()) == 3)
    verdicts.close()
    assert not any(is_there(int(pid)) for pid in log().values())
    assert threading.active_count() < 10


@pytest.mark.usefixtures("_here")
def test_gpus_are_used_in_turn_by_jobs_for_any(jobs):
    both = ["cuda:0", "cuda:1"]
    for device, gpus, due in (("auto", both, both * 2), ("cpu", both, ["cpu"] * 4),
                              ("auto", [], ["auto"] * 4)):  # fmt: skip
        found = run(jobs(*["RIGHT"] * 4, device=device), workers=1, gpus=gpus)
        assert [each.device for each in found.values()] == due


@pytest.mark.usefixtures("_here")
def test_gpu_in_quarantine_is_used_no_more_and_told_aloud(jobs):
    notes = []
    asked = jobs("quarantine", "RIGHT", "RIGHT", device="cuda")
    found = run(asked, workers=1, gpus=["cuda:0", "cuda:1"], notify=notes.append)
    assert [each.device for each in found.values()] == ["cuda:0", "cuda:1", "cuda:1"]
    (note,) = notes
    assert note.startswith("cuda:0 did not recover from ")
    # Where none is left, jobs are not judged.
    asked = jobs("quarantine", "RIGHT", device="cuda") + jobs("RIGHT", device="cuda:0")
    found = list(run(asked, workers=1, gpus=["cuda:0"]).values())
    assert [each.word for each in found] == ["CRASHED", "NOT JUDGED", "NOT JUDGED"]
    assert {each.reasons[0].code for each in found} == {"device_unhealthy"}


def test_process_that_cannot_be_started_is_one_message(jobs):
    with pytest.raises(Exception, match="cannot start a process: No such file"):
        list(LocalPool(1, command=["/no/where"]).run(jobs("RIGHT")))
