import json
import runpy
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import pytest

import losscli
from losscli.judge.parts import JudgeReason
from losscli.reasons import Code
from tests.judging import RIGHT, ROOT, WRONG, verdict

UNJUDGED = verdict("NOT JUDGED", reasons=(JudgeReason(Code.NO_ROOM, "time", "no memory"),))


@dataclass
class EvaluationResult:
    """OpenEvolve's."""

    metrics: dict[str, float]
    artifacts: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def example(monkeypatch):
    """Return a function that runs an example whose judge has a verdict; it returns its names."""
    modules: dict[str, dict[str, type]] = {
        "openevolve.evaluation_result": {"EvaluationResult": EvaluationResult},
        "kernelbench.eval": {"KernelExecResult": SimpleNamespace},
    }
    for name, members in modules.items():
        for part in (name.partition(".")[0], name):
            monkeypatch.setitem(sys.modules, part, module := ModuleType(part))
        vars(module).update(members)
    monkeypatch.setenv("LOSSCLI_JUDGE_LOSS", "mse")

    def run(name, found, *arguments):
        monkeypatch.setattr(losscli, "judge", lambda *given, **more: found, raising=False)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / f"{name}.py")))

    return run


def test_openevolve_gets_a_score_and_texts_and_tries_again_what_was_not_judged(example):
    right = example("openevolve", RIGHT).evaluate("k.py")
    assert right.metrics["combined_score"] == pytest.approx((1.8 * 2.4) ** 0.5)
    assert right.artifacts["verdict"] == "RIGHT"
    wrong = example("openevolve", WRONG).evaluate_stage1("k.py")
    assert wrong.metrics == {"combined_score": 0.0, "correct": 0.0}
    assert wrong.artifacts["feedback"] == WRONG.feedback
    with pytest.raises(RuntimeError, match="No memory"):
        example("openevolve", UNJUDGED).evaluate("k.py")


def test_kernelbench_gets_its_result_or_none(example):
    def judged(found):
        return example("kernelbench", found).eval_kernel_against_ref("model", "new", device=0)

    right, wrong = judged(RIGHT), judged(WRONG)
    assert (right.compiled, right.correctness) == (True, True)
    assert right.runtime == 1e3 * RIGHT.speed[0].seconds
    assert (wrong.correctness, wrong.metadata["correctness_issue"]) == (False, WRONG.feedback)
    assert judged(UNJUDGED) is None


def test_shinkaevolve_finds_its_two_files(example, tmp_path):
    given = ("--program_path=k", f"--results_dir={tmp_path}", "--loss=mse")
    for found, error in ((RIGHT, None), (WRONG, WRONG.feedback)):
        example("shinkaevolve", found, *given)
        record = json.loads((tmp_path / "correct.json").read_text())
        assert record == {"correct": error is None, "error": error}
        metrics = json.loads((tmp_path / "metrics.json").read_text())
        assert (metrics["combined_score"] > 0) == (error is None)
