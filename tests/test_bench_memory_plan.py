from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch

from losscli.bench.memory_plan import GPU_RESERVE, RESERVE, MemoryPlan, plan_memory, those_that_fit
from losscli.implementations import IMPLEMENTATIONS, reference_bytes
from losscli.implementations.allowance import Allowance
from losscli.implementations.builtin import of_file
from losscli.implementations.implementation import Setting
from losscli.implementations.passes import PassFactory, gradients
from losscli.implementations.source import Source
from losscli.losses import LOSSES
from losscli.reasons import Code, Reason
from losscli.truth.inputs import make_inputs
from losscli.verify.needed_memory import choose_fitting
from tests.handmade import case_of
from tests.machinery import MACHINERY

MIB = 2**20
CUSTOM, REFERENCE = IMPLEMENTATIONS["custom"], IMPLEMENTATIONS["reference"]


def case(loss="mse", reduction="mean", dtype="float32"):
    return case_of(loss, (1024, 1024), reduction=reduction, dtype=dtype)


def test_pass_needs_inputs_outputs_and_temporaries():
    both, none = [CUSTOM, REFERENCE], case(reduction="none")
    cases: list[Any] = [
        (case(), "forward", [CUSTOM], 2),
        (case(), "forward_backward", [CUSTOM], 4),  # and the gradient, and what the probe writes
        (case(), "forward", both, 2 + 4),  # and the reference's temporaries
        (none, "forward", [CUSTOM], 4),  # and the loss, and the probe's
        (none, "forward", both, 2 + 2 + 4 + 1),
        (none, "forward_backward", [CUSTOM], 6),  # and both gradients
        (case(dtype="float64"), "forward", [CUSTOM], 4),
        (case("hinge"), "forward", [CUSTOM], 1 + 1 / 1024),  # the target is one row
    ]
    for asked, pass_, implementations, tensors in cases:
        plan = plan_memory(asked, pass_, implementations)
        assert plan.total == RESERVE + tensors * 4 * MIB, (asked.name, pass_)


def test_gpu_plan_has_no_probe_arrays():
    asked = msgspec.structs.replace(case(), device="cuda:0")
    assert plan_memory(asked, "forward", [CUSTOM]).total == GPU_RESERVE + 2 * 4 * MIB
    assert plan_memory(asked, "forward_backward", [CUSTOM]).total == GPU_RESERVE + 3 * 4 * MIB


def test_plan_separates_inputs_outputs_and_temporaries():
    plan = plan_memory(case(reduction="none"), "forward_backward", [CUSTOM, REFERENCE])
    assert plan == MemoryPlan(
        inputs=3 * 4 * MIB,  # and the incoming gradient
        outputs=4 * 4 * MIB,  # two losses, one gradient, what the probe writes
        temporaries={"custom": 0, "reference": 4 * 4 * MIB},
        reserve=RESERVE,
    )
    assert plan.total == (3 + 4 + 4) * 4 * MIB + RESERVE


FUNCTIONAL = IMPLEMENTATIONS["functional"]


def test_plan_of_graphs_adds_losses_gradients_and_temporaries():
    three = [CUSTOM, REFERENCE, FUNCTIONAL]
    plan = plan_memory(case(reduction="none"), "forward_backward", three, "graph")
    held = sum(implementation.temporary_bytes(case()) for implementation in three)
    assert plan.outputs == (3 + 3 + 1) * 4 * MIB
    assert plan.total == RESERVE + plan.inputs + plan.outputs + held


def test_implementations_that_fit_in_turn_may_not_fit_as_graphs():
    two = [REFERENCE, FUNCTIONAL]
    free = plan_memory(case(), "forward_backward", two).total
    assert those_that_fit(case(), "forward_backward", two, free) == (two, {})
    able, reasons = those_that_fit(case(), "forward_backward", two, free, "graph")
    assert able == [FUNCTIONAL]
    assert list(reasons) == ["reference"]


MEASURED = [
    (loss, name, pass_)
    for loss in LOSSES
    for name in ("custom", "reference", "functional")
    for pass_ in ("forward", "forward_backward")
    # Of the others what their formulas hold at once, and backward holds more.
    if loss in MACHINERY or (name != "custom" and pass_ == "forward_backward")
    if not IMPLEMENTATIONS[name].unavailable(case(loss))
]


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(("loss", "name", "pass_"), MEASURED)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_implementations_stay_within_the_memory_plan(loss, reduction, pass_, name, dtype):
    asked = case(loss, reduction, dtype)
    implementation = IMPLEMENTATIONS[name]
    passes = PassFactory(asked, pass_, make_inputs(asked).values())
    with gradients(pass_):
        timed = passes.make(implementation.bind(asked))
        timed()
        extra = timed.peak_extra_bytes("cpu")
    assert extra is not None
    tensor = reference_bytes(asked, 1)
    held = f"holds {(extra - MIB // 4) / tensor:.2f} tensors of {tensor // MIB} MiB"
    assert extra <= implementation.temporary_bytes(asked) + MIB // 4, held


def test_temporaries_of_each_reference_are_as_declared(monkeypatch):
    for dtype, widens, item in (
        *(("float32", False, 4), ("bfloat16", False, 2)),
        *(("bfloat16", True, 4), ("float64", True, 8)),
    ):
        monkeypatch.setitem(LOSSES, "mse", replace(LOSSES["mse"], temporaries=9, widens=widens))
        asked = case(dtype=dtype)
        for implementation in (REFERENCE, FUNCTIONAL):
            assert implementation.temporary_bytes(asked) == 9 * item * MIB
        assert CUSTOM.temporary_bytes(asked) == 0


def test_largest_implementation_is_dropped_first_with_both_sizes():
    both = [REFERENCE, CUSTOM]
    assert those_that_fit(case(), "forward", both, 2**40) == (both, {})
    able, reasons = those_that_fit(case(), "forward", both, RESERVE + 10 * MIB)
    assert able == [CUSTOM]
    assert reasons["reference"].text == "needs 536.0 MiB of memory, 522.0 MiB are free"
    able, reasons = those_that_fit(case(), "forward", both[::-1], RESERVE)
    assert able == []
    assert list(reasons) == ["reference", "custom"]


def test_peak_memory_excludes_inputs_loss_and_gradient(capfd):
    x, y = torch.rand(2, 512, 512)
    cases: list[Any] = [
        ("forward", lambda x, y: (x * y).sum(), 1),
        ("forward", lambda x, y: ((x - y) + 1).sum(), 2),
        ("forward", lambda x, y: x * y, 0),  # the loss itself is not extra
        ("forward_backward", lambda x, y: (x.exp() * y).sum(), 2),  # the saved exp, its product
    ]
    for pass_, function, tensors in cases:
        timed = PassFactory(case(), pass_, (x, y)).make(function)
        with gradients(pass_):
            timed()
            extra = timed.peak_extra_bytes("cpu")
        assert extra == pytest.approx(tensors * MIB, abs=1024)
        assert timed.loss is timed.input.grad is None
    assert capfd.readouterr().err == ""


def test_a_file_whose_process_may_not_take_what_a_case_needs_is_skipped(tmp_path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("def mse_loss(input, target): ...\n")
    case = case_of("mse", (1024, 1024))

    def reasons(memory_bytes: int) -> dict[str, Reason]:
        setting = Setting(Allowance(memory_bytes=memory_bytes))
        file = of_file(Source.read(str(path)), setting)
        return choose_fitting(case, "forward", [file], free=2**40)[1]

    assert not reasons(2**30)
    (reason,) = reasons(2**22).values()
    assert reason.code == Code.INSUFFICIENT_MEMORY
    assert reason.text.endswith("may take 4.0 MiB")
