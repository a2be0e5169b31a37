import pytest

from losscli.cli.options import resolve_config
from losscli.runs.records import FAIL
from losscli.verify import pool
from losscli.verify.pool import Pool, processes_for
from losscli.verify.runner import plan, run

CHECKS = ("value", "gradients", "exact")


@pytest.fixture(scope="module")
def jobs():
    config = resolve_config(
        "quick",
        device="cpu",
        seed=None,
        losses=("hinge", "mse"),
        dtypes=("float32",),
        sizes=((5, 7), (3,)),
        reductions=("none", "mean"),
        implementations=("custom",),
    )
    return plan(config, "cpu", checks=CHECKS)


def test_results_are_those_of_one_process_in_the_same_order(jobs):
    assert len(jobs) > 3
    for processes in (0, 2):
        with Pool(jobs, processes) as several:
            got = [result for job in jobs for result in several.results_of(job)]
        assert got == [result for job in jobs for result in run(job)]


def test_death_of_a_process_fails_its_check_and_neither_those_behind_it_nor_large_jobs(
    jobs, monkeypatch
):
    """Large jobs run in this process."""
    monkeypatch.setattr(pool, "LARGEST", 3)
    assert {job.case.elements for job in jobs} == {3, 35, 64}
    with Pool(jobs, 1) as one:
        (process,) = one._processes
        process._process.end()
        results = [list(one.results_of(job)) for job in jobs]
    (first, *_) = (number for number, job in enumerate(jobs) if job.case.elements == 3)
    died = results[first][-1]
    assert (died.status, died.code) == (FAIL, "process_died")
    assert died.reason == "its process ended by SIGKILL"
    assert died.case == jobs[first].case
    others = [number for number in range(len(jobs)) if number != first]
    assert [results[number] for number in others] == [list(run(jobs[n])) for n in others]


@pytest.mark.slow
def test_process_that_has_finished_is_not_started_again(jobs):
    with Pool(jobs, 1) as one:
        (process,) = one._processes
        started = process._process
        started.end(60)  # all that it sent waits in the pipe
        got = [result for job in jobs for result in one.results_of(job)]
        assert process._process is started
    assert got == [result for job in jobs for result in run(job)]


def test_few_checks_and_those_of_a_gpu_run_in_this_process(jobs, monkeypatch):
    monkeypatch.setattr(pool, "core_count", lambda: 4)
    assert processes_for(jobs, "cpu") == 0
    many = jobs * 1000
    assert processes_for(many, "cpu") == 4
    assert processes_for(many, "cuda:0") == 0
