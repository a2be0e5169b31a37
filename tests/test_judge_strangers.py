"""Files as their authors write them get the verdict that is due, and words that name why."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from losscli.errors import EXIT_OK
from losscli.judge import against_loss
from losscli.judge.job import Job
from losscli.judge.judging import judge_job
from losscli.reasons import Code
from tests.parameters import SLOW

FOLDER = Path(__file__).parent / "data" / "strangers"
RIGHT = ("RIGHT", "SLOWER", "SAME ERROR AS PYTORCH")


class Stranger(NamedTuple):
    """A file, how it is judged, the verdicts that are due, and what one has to say of a facet."""

    file: str
    words: tuple[str, ...]
    says: dict[str, str] = {}  # noqa: RUF012 - of a facet; of the notes, where the name is empty
    options: dict[str, Any] = {}  # noqa: RUF012


STRANGERS = (
    Stranger("ce_weight_torch", RIGHT, {"gradient": "ok"}),
    Stranger("ce_kwargs", RIGHT, {"reductions": "not tested"}),
    Stranger("triplet_model_new_margin", RIGHT, {}, {"loss": "triplet_margin"}),
    Stranger(
        *("focal_hard_labels", ("RIGHT WITHIN LIMITS",)),
        {"value": "limited: it is defined for labels 0 and 1", "second_derivatives": "ok"},
    ),
    Stranger(
        *("ce_nothing_left", ("RIGHT WITHIN LIMITS", *RIGHT)),
        {"extreme_values": "raises: returned a loss that has no gradient for input"},
    ),
    Stranger(
        *("js_divergence_teacher", ("RIGHT WITHIN LIMITS",)),
        {"gradient": "limited: it computes no gradient for target", "second_derivatives": "ok"},
    ),
    Stranger(
        *("linear_cross_entropy_frozen", ("RIGHT WITHIN LIMITS",)),
        {"gradient": "limited: it computes no gradient for linear_weight where none for input"},
    ),
    Stranger(
        *("linear_cross_entropy_together", ("RIGHT WITHIN LIMITS",)),
        {"gradient": "limited: it raised ValueError: not enough values to unpack"},
    ),
    Stranger(
        *("mse_of_one_size_model", ("RIGHT WITHIN LIMITS",)),
        {"value": "ok", "sizes": "limited: ", "layouts": "limited: "},
    ),
    Stranger(
        *("mse_of_one_size_model", ("RIGHT WITHIN LIMITS",), {"value": "ok"}, {"quick": False})
    ),
    Stranger("triplet_without_eps", RIGHT, {"": "computes triplet_margin, mean"}),
    Stranger(
        *("log_probs_by_logsumexp", ("RIGHT WITHIN LIMITS",)),
        {"extreme_values": "limited: logits "},
    ),
    Stranger(
        *("cosine_zero_row_model", ("RIGHT WITHIN LIMITS",)),
        {"": "computes cosine_similarity, mean", "extreme_values": "limited: vectors of zeros"},
    ),
    Stranger(
        *("ce_without_maximum", ("WRONG",)),
        {"": "computes cross_entropy, mean", "extreme_values": "wrong: logits around 100"},
    ),
    Stranger(
        "ce_sums_in_its_dtype",
        ("RIGHT WITHIN LIMITS",),
        {"dtypes": "limited: operands of float16: expected"},
    ),
    Stranger("mse_by_vmap", ("RIGHT WITHIN LIMITS", *RIGHT), {"global_state": "ok"}),
    Stranger("hinge_by_relu", ("RIGHT WITHIN LIMITS",), {"value": "ok", "gradient": "ok"}),
    Stranger("quantile_by_where", RIGHT, {"value": "ok", "gradient": "ok"}),
    Stranger(
        *("log_probs_squeezed", ("RIGHT WITHIN LIMITS",)),
        {"layouts": "limited: returned a loss of shape (5,), not (5, 1)"},
    ),
    Stranger(
        *("mean_of_nothing", ("RIGHT WITHIN LIMITS",)),
        {"extreme_values": "limited: all rows ignored, loss: expected nan, got 0"},
    ),
    Stranger("huber_by_keywords", RIGHT, {"gradient": "ok"}),
    Stranger(
        *("cross_entropy_of_function", ("RIGHT WITHIN LIMITS",)),
        {"gradient": "ok"},
        {"loss": "cross_entropy"},
    ),
    Stranger(
        *("distillation_last_dimension", ("RIGHT WITHIN LIMITS",)),
        {"": "computes kl_divergence, mean", "value": "ok", "layouts": "limited: "},
    ),
    Stranger("ce_negative_ignore_index", ("WRONG",), {"reductions": "wrong: expected"}),
    Stranger("module_named_mse", ("WRONG",)),
    Stranger("policy_dual_clip_unused", ("WRONG",)),
    Stranger("mse_dense_without_gradient", ("RIGHT WITHIN LIMITS",), {"layouts": "limited: "}),
    Stranger("multi_margin_weight_last", RIGHT, {"gradient": "ok"}),
    Stranger("smooth_l1_beta_positional", RIGHT, {"parameters": "ok"}),
    Stranger(
        *("smooth_l1_beta_positional", RIGHT, {"parameters": "not tested"}),
        {"call": "smooth_l1_loss(input, target, 1.0, 'mean')"},
    ),
    Stranger(
        *("gradient_in_place", ("RIGHT WITHIN LIMITS",)),
        {"inputs": "limited: it overwrites its input", "repeated_backward": "raises: "},
    ),
    Stranger(
        *("sets_cudnn_benchmark", ("RIGHT WITHIN LIMITS",)),
        {"global_state": "limited: its import or constructor changes benchmark mode of cuDNN"},
    ),
    Stranger(
        *("mse_in_float32", ("RIGHT WITHIN LIMITS",)),
        {"dtypes": "limited: operands of float64: expected"},
    ),
    Stranger(
        *("touches_state_at_import", ("RIGHT WITHIN LIMITS",)),
        {"global_state": "limited: its import or constructor changes Python's random state"},
    ),
)


OF_FACETS = (
    *("extreme_values", "special_values", "second_derivatives"),
    *("retain_graph", "memory", "global_state"),
)
"""The quick checks that decide what a stranger's facets have to say."""


EACH_RUN = {
    *("ce_weight_torch", "focal_hard_labels", "cosine_zero_row_model", "ce_without_maximum"),
    *("gradient_in_place", "touches_state_at_import", "mse_in_float32"),
}
"""The files that each run judges by few checks."""


@pytest.mark.parametrize(
    ("of", "every"),
    [
        *(pytest.param(of, False, id=of.file) for of in STRANGERS if of.file in EACH_RUN),
        *(pytest.param(of, True, marks=SLOW, id=f"{of.file}-every") for of in STRANGERS),
    ],
)
def test_a_file_gets_its_verdict_and_its_words(of, every, monkeypatch) -> None:
    if not every:
        monkeypatch.setattr(against_loss, "QUICK_CHECKS", OF_FACETS)
    options: dict[str, Any] = {"device": "cpu", "quick": True, "timed": False} | of.options
    job = Job(str(FOLDER / f"{of.file}.py"), **options)
    verdict = judge_job(job)
    assert verdict.word in of.words, verdict.reasons
    told = verdict.facets | {"": "; ".join(verdict.notes)}
    for facet, text in of.says.items():
        assert told[facet].startswith(text), told
    assert (verdict.exit_code == EXIT_OK) == ("WRONG" not in of.words)


@SLOW
def test_a_build_that_fails_and_is_caught_leaves_a_right_file() -> None:
    file = str(FOLDER / "fallback_to_torch.py")
    verdict = judge_job(Job(file, device="cpu", quick=True, timed=False))
    assert verdict.word in RIGHT
    assert verdict.notes == ("computes huber, mean",)


def test_a_kernel_of_its_own_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against_loss, "QUICK_CHECKS", ())
    file = str(FOLDER / "smooth_l1_beta_positional.py")
    job = Job(file, device="cpu", quick=True, timed=False, own_kernel="require")
    verdict = judge_job(job)
    assert (verdict.word, verdict.exit_code, verdict.correct) == ("NO KERNEL OF ITS OWN", 1, True)
    assert "PyTorch" in verdict.notes[-1]


def test_a_cuda_file_without_a_compiler_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", "/nonexistent")
    verdict = judge_job(Job(str(FOLDER / "default_stream.py"), device="cpu"))
    assert (verdict.word, verdict.exit_code) == ("NOT JUDGED", 4)


def test_a_file_that_cannot_be_imported_is_no_wrong_reference(judged) -> None:
    verdict = judged("import focal_cpp\ndef focal_loss(logits, label): ...\n")
    assert (verdict.word, verdict.reasons[0].code) == ("DOES NOT BUILD", Code.IMPORT_FAILED)


def test_a_loss_at_one_value_of_a_parameter_is_not_recognised(judged) -> None:
    text = (FOLDER / "distillation_last_dimension.py").read_text()
    text = text.replace('"batchmean")', '"batchmean") * temperature**2')
    verdict = judged(text.replace("temperature):", "temperature=1.0):"))
    assert (verdict.word, verdict.reasons[0].code) == ("NOT JUDGED", Code.UNKNOWN_LOSS)
    assert "computes kl_divergence only at temperature=1" in verdict.reasons[0].text


def test_the_only_definition_of_a_file_is_judged_as_the_loss_that_is_asked_for(judged) -> None:
    verdict = judged(
        "import torch\n"
        "class OfMany(torch.nn.Module):\n"
        "    def forward(self, student, teacher): return (student - teacher).square().mean()\n",
        loss="mse",
    )
    assert verdict.right, verdict.reasons


def test_an_error_that_keeps_a_loss_from_being_recognised_is_shown(judged) -> None:
    verdict = judged(
        "import torch\n"
        "class Loss(torch.nn.Module):\n"
        "    def __init__(self, mode): super().__init__()\n"
        "    def forward(self, input, target): return (input - target).abs().mean()\n"
    )
    assert (verdict.word, verdict.reasons[0].code) == ("NOT JUDGED", Code.UNKNOWN_LOSS)
    assert "missing 1 required positional argument: 'mode'" in verdict.reasons[0].text


def test_a_file_that_needs_a_gpu_is_not_judged_on_a_cpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("the file finds a GPU")
    verdict = judge_job(Job(str(FOLDER / "needs_a_gpu.py"), device="cpu", quick=True, timed=False))
    assert (verdict.word, verdict.reasons[0].code) == ("NOT JUDGED", Code.MISSING_TOOL)


@pytest.mark.gpu
def test_a_kernel_of_the_default_stream_is_limited_to_it() -> None:
    verdict = judge_job(Job(str(FOLDER / "default_stream.py"), loss="mse", quick=True))
    assert verdict.word in ("RIGHT BUT NO GRADIENT", "RIGHT WITHIN LIMITS"), verdict.reasons
