"""The adapters keep the contracts of the tools that call them."""

import importlib
import json
import subprocess
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from losscli.errors import LosscliError, UnfitError, UsageError
from losscli.judge import adapters
from losscli.judge.adapters import kernelbench, openevolve, shinkaevolve
from losscli.judge.parts import JudgeReason
from losscli.judge.verdict import score, speedup
from tests.judging import RIGHT, ROOT, WRONG, verdict, write

BUILD = verdict("DOES NOT BUILD", reasons=(JudgeReason("build_failed", "build", "line 3: error"),))
UNJUDGED = verdict("NOT JUDGED", reasons=(JudgeReason("no_room", "time", "no memory"),))
BAD = verdict("NOT JUDGED", reasons=(JudgeReason("bad_reference", "parse", "it raises."),))


@pytest.fixture
def judged(monkeypatch):
    """Return a function that sets the verdict, and the list of the jobs that asked for it."""
    jobs = []

    def set_verdict(found):
        def judge_one(job):
            jobs.append(job)
            return replace(found, id=job.id, file=job.file)

        monkeypatch.setattr(adapters, "judge_one", judge_one)
        return jobs

    return set_verdict


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setenv(adapters.VARIABLE, "smooth_l1")
    return write(tmp_path, "program.py")


def test_score_is_the_speedup_and_0_where_it_is_wrong():
    assert score(RIGHT) == pytest.approx((1.8 * 2.4) ** 0.5)
    assert score(replace(RIGHT, word="WRONG")) == 0.0
    assert score(verdict("RIGHT BUT NO GRADIENT")) == 1.0
    assert speedup(RIGHT, "forward", "compile") == pytest.approx(0.9)
    assert speedup(RIGHT, "forward", "nothing") is None


@pytest.mark.parametrize("name", ["kernelbench", "openevolve", "shinkaevolve", "__init__"])
def test_adapter_has_at_most_50_lines(name):
    path = ROOT / "losscli" / "judge" / "adapters" / f"{name}.py"
    assert len(path.read_text().splitlines()) <= 50


# KernelBench: kernelbench.eval.eval_kernel_against_ref and its KernelExecResult.

FIELDS = ["compiled", "correctness", "metadata", "runtime", "runtime_stats"]
FIELDS += ["ref_runtime", "ref_runtime_stats"]


def evaluate_kernel(**options):
    return kernelbench.eval_kernel_against_ref(
        "class Model: pass", "class ModelNew: pass", seed_num=42, verbose=False, **options
    )


def test_kernelbench_result_has_its_fields_and_defaults():
    result = kernelbench.KernelExecResult()
    assert list(vars(result)) == FIELDS
    assert (result.compiled, result.correctness, result.runtime) == (False, False, -1.0)


def test_kernelbench_right_kernel_has_times_in_milliseconds(judged):
    jobs = judged(RIGHT)
    result = evaluate_kernel(measure_performance=True, device=torch.device("cuda:1"))
    assert (result.compiled, result.correctness) == (True, True)
    assert (result.runtime, result.ref_runtime) == (pytest.approx(1.2), pytest.approx(2.16))
    [job] = jobs
    assert (job.device, job.timed, job.dtypes) == ("cuda:1", True, ("float32",))
    assert not Path(job.file).exists()


def test_kernelbench_judges_the_sources_against_each_other(monkeypatch):
    def judge_one(job):
        assert Path(job.file).read_text() == "class ModelNew: pass"
        assert Path(job.reference).read_text() == "class Model: pass"
        assert (job.loss, job.device, job.dtypes) == ("", "cuda:0", ("bfloat16",))
        return RIGHT

    monkeypatch.setenv(adapters.VARIABLE, "mse")
    monkeypatch.setattr(adapters, "judge_one", judge_one)
    assert evaluate_kernel(device=0, precision=torch.bfloat16).correctness


@pytest.mark.parametrize(
    ("found", "compiled", "key"),
    [(BUILD, False, "compilation_error"), (WRONG, True, "correctness_issue")],
)
def test_kernelbench_failure_says_why(judged, found, compiled, key):
    judged(found)
    result = evaluate_kernel(measure_performance=True)
    assert (result.compiled, result.correctness, result.runtime) == (compiled, False, -1.0)
    assert result.metadata[key]
    json.dumps(result.metadata)


def test_kernelbench_asks_to_try_again_where_nothing_was_judged(judged):
    judged(UNJUDGED)
    assert evaluate_kernel() is None


def test_wrong_reference_is_an_error_of_the_caller(judged):
    judged(BAD)
    with pytest.raises(UsageError, match="it raises"):
        evaluate_kernel()


# OpenEvolve: evaluate(program_path), which returns metrics and artifacts.


def test_openevolve_result_has_metrics_and_artifacts(judged, program):
    jobs = judged(RIGHT)
    result = openevolve.evaluate(program)
    assert result.metrics["combined_score"] == score(RIGHT)
    assert result.metrics["correct"] == 1.0
    assert result.metrics["speedup_forward"] == pytest.approx(1.8)
    assert all(isinstance(value, float) for value in result.metrics.values())
    assert result.artifacts["feedback"].startswith(f"{program} is right")
    assert all(isinstance(value, str) for value in result.artifacts.values())
    assert (jobs[0].loss, jobs[0].file) == ("smooth_l1", program)


def test_openevolve_wrong_program_scores_0_with_feedback(judged, program):
    judged(WRONG)
    result = openevolve.evaluate(program)
    assert result.metrics == {"combined_score": 0.0, "correct": 0.0}
    assert "The check layouts" in result.artifacts["feedback"]


def test_openevolve_first_stage_is_quick_and_untimed(judged, program):
    jobs = judged(verdict("RIGHT"))
    assert openevolve.evaluate_stage1(program).metrics["combined_score"] == 1.0
    assert (jobs[0].quick, jobs[0].timed) == (True, False)
    openevolve.evaluate_stage2(program)
    assert (jobs[1].quick, jobs[1].timed) == (False, True)


def test_openevolve_tries_again_where_nothing_was_judged(judged, program):
    judged(UNJUDGED)
    with pytest.raises(UnfitError, match="was not judged"):
        openevolve.evaluate(program)


def test_openevolve_gets_a_result_of_its_own_class(monkeypatch, judged, program):
    @dataclass
    class EvaluationResult:
        metrics: dict
        artifacts: dict = field(default_factory=dict)

    module = types.ModuleType("openevolve.evaluation_result")
    vars(module)["EvaluationResult"] = EvaluationResult
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "openevolve", types.ModuleType("openevolve"))
        patched.setitem(sys.modules, "openevolve.evaluation_result", module)
        adapter = importlib.reload(openevolve)
        judged(RIGHT)
        assert type(adapter.evaluate(program)) is EvaluationResult
    importlib.reload(openevolve)


# ShinkaEvolve: --program_path, --results_dir, correct.json, metrics.json.


def shinka(program, folder, *more):
    shinkaevolve.main(["--program_path", program, "--results_dir", str(folder), *more])
    return read(folder)


def read(folder):
    return [json.loads((folder / f"{name}.json").read_text()) for name in ("correct", "metrics")]


def test_shinkaevolve_right_program(judged, program, tmp_path):
    jobs = judged(RIGHT)
    correct, metrics = shinka(program, tmp_path / "new" / "results", "--loss", "mse")
    assert correct == {"correct": True, "error": None}
    assert metrics.keys() == {"combined_score", "public", "private", "text_feedback"}
    assert metrics["combined_score"] == score(RIGHT)
    assert metrics["public"]["verdict"] == "RIGHT"
    assert metrics["public"]["speedup_forward"] == pytest.approx(1.8)
    assert metrics["text_feedback"].startswith(f"{program} is right")
    assert jobs[0].loss == "mse"


def test_shinkaevolve_wrong_program(judged, program, tmp_path):
    judged(WRONG)
    correct, metrics = shinka(program, tmp_path)
    assert correct["correct"] is False
    assert correct["error"] == metrics["text_feedback"]
    assert metrics["combined_score"] == 0.0


def test_shinkaevolve_error_is_written_too(tmp_path, program):
    with pytest.raises(SystemExit, match="there is no file"):
        shinka("nowhere.py", tmp_path)
    correct, metrics = read(tmp_path)
    assert correct["correct"] is False
    assert "there is no file" in correct["error"]
    assert metrics["combined_score"] == 0.0


def test_shinkaevolve_runs_as_a_module(tmp_path):
    command = [sys.executable, "-m", "losscli.judge.adapters.shinkaevolve"]
    arguments = ["--program_path", "nowhere.py", "--results_dir", str(tmp_path)]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "losscli: error: there is no file 'nowhere.py'.\n"
    assert read(tmp_path)[0]["correct"] is False


def test_unknown_loss_of_the_variable_is_named(program, monkeypatch):
    monkeypatch.setenv(adapters.VARIABLE, "mes")
    with pytest.raises(LosscliError, match="unknown loss 'mes'"):
        adapters.judge_file(program)
