import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from losscli.files.directories import UNUSED_SECONDS
from losscli.implementations.allowance import Allowance
from losscli.implementations.source import Source
from losscli.judge import verdict_cache as module
from losscli.judge.batch import judge_batch
from losscli.judge.job import Job
from losscli.judge.verdict import not_judged
from losscli.judge.verdict_cache import VerdictCache, describe_machine
from losscli.judge.verdict_parts import JudgeReason
from losscli.reasons import Code
from tests.judging import LAYOUTS, verdict, write
from tests.parameters import naming

FACTS = ("losscli 1", "torch 2")


@pytest.fixture
def cache(tmp_path):
    return VerdictCache(tmp_path / "verdicts", FACTS)


@pytest.fixture
def job(tmp_path):
    return Job(file=write(tmp_path, "k.py"), id="a", loss="smooth_l1", device="cpu")


def kept(cache, job, **changes):
    """Keep a verdict on a job and tell whether it is found."""
    cache.keep(job, verdict(**{"file": job.file, "id": job.id} | changes))
    return cache.find(job) is not None


def test_verdict_is_found_with_a_mark(cache, job):
    assert cache.find(job) is None
    cache.keep(job, verdict("WRONG", job.file, id="a", reasons=(LAYOUTS,)))
    found = cache.find(job)
    assert (found.word, found.cached, found.reasons) == ("WRONG", True, (LAYOUTS,))


def test_same_source_in_another_file_is_found_by_its_own_names(cache, job, tmp_path):
    repeat = f'repeat("{job.file}", ...)'
    cache.keep(job, verdict("WRONG", job.file, reasons=(replace(LAYOUTS, repeat=repeat),)))
    other = replace(job, file=write(tmp_path, "other.py"), id="b")
    found = cache.find(other)
    assert (found.id, found.file) == ("b", other.file)
    assert found.reasons[0].repeat == f'repeat("{other.file}", ...)'


CHANGES: dict[str, dict[str, Any]] = {
    "loss": {"loss": "mse"},
    "device": {"device": "auto"},
    "size": {"sizes": ((8, 8),)},
    "dtype": {"dtypes": ("float64",)},
    "parameter": {"parameters": {"beta": 0.5}},
    "reduction": {"reduction": "sum"},
    "quick": {"quick": True},
    "timed": {"timed": False},
    "arguments": {"arguments": ("target", "input")},
    "limits": {"limits": Allowance(call_seconds=1.0)},
}


def test_another_job_file_or_machine_is_not_found(cache, job, tmp_path):
    job = replace(job, reference=write(tmp_path, "reference.py"))
    assert kept(cache, job)
    for name, changes in CHANGES.items():
        with naming(name):
            assert cache.find(replace(job, **changes)) is None
    assert cache.find(replace(job, file=f"{job.file}:smooth_l1_loss")) is None
    assert VerdictCache(cache.root, ("losscli 1", "torch 3")).find(job) is None
    for name in (job.reference, job.file):
        assert kept(cache, job)
        with open(name, "a") as file:
            file.write("# edited\n")
        assert cache.find(job) is None


def test_verdicts_on_changed_files_and_by_chance_are_not_cached(cache, job):
    assert not kept(cache, job, sha256="0" * 64)
    for word in ("NOT JUDGED", "HANGS"):
        assert not kept(cache, job, word=word)
    chance: Iterable[Any] = module.CHANCE_CODES
    for code in chance:
        with naming(code):
            reasons = LAYOUTS, JudgeReason(code, "checks", "")
            assert not kept(cache, job, word="WRONG", reasons=reasons)


def test_a_damaged_entry_and_a_cache_that_cannot_be_written_are_no_error(cache, job, tmp_path):
    assert kept(cache, job)
    [path] = cache.root.rglob("*.json")
    path.write_text(path.read_text()[:50])
    assert cache.find(job) is None
    (tmp_path / "file").touch()
    assert not kept(VerdictCache(tmp_path / "file", FACTS), job)


def test_verdict_unused_for_a_month_is_removed_and_asking_keeps_it(cache, job):
    assert kept(cache, job)
    now = time.time()
    [path] = cache.root.rglob("*.json")
    os.utime(path, (0, 0))
    assert cache.find(job)
    cache.drop_unused(time.time() + UNUSED_SECONDS / 2)
    assert cache.find(job)
    os.utime(path, (0, now - 2 * UNUSED_SECONDS))
    cache.drop_unused(now)
    assert cache.find(job) is None


ALONE = {
    "import torch\n": True,
    "import torch.nn.functional as F\nfrom torch import nn\n": True,
    "import neighbour\n": False,
    "from neighbour.part import thing\n": False,
    "import folder\n": False,
    "def f():\n    import neighbour\n": False,
    "load(sources=['kernel.cu'])\n": False,
    "open('folder/data.txt')\n": False,
    "here = __file__\n": False,
    "x = 'kernel'\n": True,
    "x = 'a\\0b'\n": True,
    f"x = '{'long ' * 900}'\n": True,
}


def test_file_that_depends_on_others_does_not_stand_alone_and_is_not_kept(cache, tmp_path):
    (tmp_path / "neighbour.py").touch()
    (tmp_path / "kernel.cu").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "data.txt").touch()
    for source, alone in ALONE.items():
        with naming(source):
            file = Source("k.py", tmp_path / "k.py", "", "", source.encode())
            assert file.stands_alone is alone
    path = tmp_path / "k.py"
    path.write_text("import neighbour\ndef smooth_l1_loss(input, target): ...\n")
    assert not kept(cache, Job(file=str(path), id="a"))


def test_facts_of_the_machine_stay_and_the_cache_lies_in_the_users_folder(monkeypatch, tmp_path):
    facts = list(describe_machine())
    assert facts == list(describe_machine())
    assert any(fact.startswith("torch 2") for fact in facts)
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path))
    assert module.user_verdicts().root == Path(tmp_path, "verdicts")


class Pool:
    """A pool that judges everything right, and notes what."""

    def __init__(self):
        self.judged = []

    def run(self, jobs):
        for item in jobs:
            if isinstance(item, Job):
                self.judged.append(item.id)
                yield verdict("RIGHT", item.file, id=item.id)
            else:
                yield item


def test_batch_judges_what_is_neither_finished_nor_in_the_cache(cache, job, tmp_path):
    others = [
        replace(job, file=write(tmp_path, f"{name}.py", name), id=name) for name in ("done", "new")
    ]
    broken = not_judged(Job("x", id="x"), Code.BAD_JOB, "no.")
    cache.keep(job, verdict("RIGHT", job.file, id=job.id))
    pool = Pool()
    found = list(judge_batch([job, *others, broken], pool, cache=cache, finished={"done"}))
    assert pool.judged == ["new"]
    assert [(each.id, each.cached) for each in found] == [("a", True), ("new", False), ("x", False)]
    assert cache.find(others[1])
    [again] = judge_batch([job], Pool())  # which has no cache
    assert not again.cached


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that writes losscli's files, and returns the version of what they are."""

    def version(name, *paths, text=""):
        for path in paths:
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(f"{Path(path).name} {text}")
        monkeypatch.setattr("losscli.__file__", str(tmp_path / name / "losscli" / "__init__.py"))
        return module.own_version.__wrapped__()

    return version


def test_checkout_and_wheel_of_the_same_sources_are_the_same_version(installed):
    python = ("losscli/__init__.py", "losscli/zoo.py")
    checkout = installed("checkout", *python, "csrc/kernel.h", "tests/candidates/k.py")
    wheel = installed("wheel", *python, "losscli/csrc/kernel.h", "losscli/candidates/k.py")
    assert checkout == wheel
    assert installed("edited", *python, "csrc/kernel.h", text="edited") != wheel
