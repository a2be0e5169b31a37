import json
from typing import Any

import pytest
import torch
from torch import Tensor

from losscli.bench.limit import Limits, products
from losscli.cli import main
from losscli.implementations import plan_of
from losscli.implementations.passes import PassFactory, gradients
from losscli.implementations.subject import subject_of
from losscli.implementations.timer import make_timer
from losscli.runs.records import FAIL, PASS
from losscli.truth.gate import Gate
from losscli.truth.inputs import make_inputs
from losscli.units import format_memory, parse_memory
from tests.truth.test_linear_oracle import make_case

SIZE = ("--size", "32x8x64")


def no_probe(device: str) -> Any:
    raise AssertionError("products need no probe of the memory")


@pytest.mark.parametrize(("pass_", "count"), [("forward", 1), ("forward_backward", 3)])
def test_limit_is_the_time_of_the_bare_products(pass_, count, monkeypatch):
    case = make_case()
    reads = list(make_inputs(case).values())
    called: list[tuple[int, ...]] = []
    mm = torch.mm

    def counted(first: Tensor, second: Tensor, *, out: Tensor) -> Tensor:
        called.append((*first.shape, second.shape[1]))
        return mm(first, second, out=out)

    monkeypatch.setattr(torch, "mm", counted)
    products(pass_, reads[0], reads[2])()
    assert called == [(40, 12, 57), (40, 57, 12), (57, 40, 12)][:count]
    limits = Limits("cpu", no_probe)
    timer = make_timer("cpu", False, "device")
    limit = limits.find(case, pass_, timer, reads)
    assert limit.seconds is not None
    assert limits.contender(case, pass_, timer, reads) is not None


def test_a_pass_computes_all_gradients_of_a_step_and_measures_memory_beyond_them():
    case = make_case("biased_linear_cross_entropy", (64, 16, 300))
    passes = PassFactory(case, "forward_backward", make_inputs(case).values())
    subject: Any = subject_of("custom", case)
    with gradients("forward_backward"):
        timed = subject.repeated(passes)
        timed.compute()
        shapes = [None if each is None else tuple(each.shape) for each in timed.gradients]
        timed()
        freed = timed.gradients
        extra = timed.peak_extra_bytes("cpu")
    assert shapes == [(64, 16), (300, 16), (300,)]
    assert freed == (None, None, None)
    logits = 64 * 300 * 4
    assert logits <= extra < 1.2 * logits
    plan = plan_of(case)
    assert plan is not None
    assert plan.bytes == logits


def test_a_wrong_gradient_of_the_weight_gets_no_time():
    case = make_case()
    operands = make_inputs(case)
    gate = Gate(case, operands)
    call = gate.problem.call(gate.problem.usual)
    answer = subject_of("custom", case).send(call)
    of_hidden, of_weight = answer.gradients.values()
    right = gate.judge("mine", "forward_backward", answer.loss, of_hidden, of_weight)
    assert of_weight is not None
    wrong = gate.judge("mine", "forward_backward", answer.loss, of_hidden, of_weight * 1.01)
    assert (right.status, wrong.status) == (PASS, FAIL)
    assert wrong.reason.startswith("linear_weight gradient: expected ")
    assert gate.judge("mine", "forward_backward", answer.loss).status == FAIL


def test_bench_compares_budgets_beside_the_products(config, capsys):
    name = config(
        "losses: {linear_cross_entropy: {memory_budget: [0, 200kB]}}\n"
        "sizes: 1100x8x64\ninputs: {distribution: normal}\n"
        "passes: forward_backward\nimplementations: [custom, reference]\n"
        "timing: {min_time: 1ms, max_time: 5ms, processes: 1}\n"
    )
    assert main.run(["bench", "-c", name, "--device", "cpu", "--format", "json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [r["case"]["params"]["memory_budget"] for r in results] == [0, 0, 2e5, 2e5]
    assert all(r["status"] == "ok" and r["limit_gbps"] > 0 for r in results)
    whole, _, chunked, reference = [r["peak_extra_bytes"] for r in results]
    assert chunked < 2e5 + 64 * 1100 < whole < reference  # and a few numbers for each token


@pytest.mark.slow
def test_table_has_operations_and_names_budgets(capsys):
    short = ("--device", "cpu", "--max-time", "5ms", "--min-time", "1ms")
    assert main.run(["bench", "-c", "linear", *SIZE, "--impl", "custom", *short]) == 0
    out = capsys.readouterr().out
    assert "TFLOP/s" in out
    assert "GB/s" not in out
    assert "memory_budget=300MB" in out.replace("\n", "") or "300MB" in out


def test_dry_run_prints_the_plan(config, capsys):
    for budget, plan in (
        (2**30, "all logits at once"),
        (1_500_000, "chunks of 896 tokens"),
        (800_000, "slices of 31 classes"),
    ):
        name = config(
            f"losses: {{linear_cross_entropy: {{memory_budget: {budget}}}}}\n"
            "sizes: 1536x16x400\npasses: forward_backward\nimplementations: [custom, reference]\n"
        )
        assert main.run(["bench", "-c", name, "--device", "cpu", "--dry-run"]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if " custom " in line]
        assert plan in line


def test_budgets_are_read_in_bytes():
    for text, count in {"1.2GB": 1.2e9, "300 MB": 3e8, "1GiB": 2**30, "512": 512}.items():
        assert parse_memory(text) == count
        assert parse_memory(format_memory(count)) == count
