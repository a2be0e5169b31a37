"""The GPU's differences: generators, devices, errors that surface late."""

import json
import subprocess
import sys

import pytest
import torch

from losscli.cases.axes import DISTRIBUTIONS, DTYPES
from losscli.implementations import Implementation, find_implementation
from losscli.losses import REDUCTIONS
from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.inputs import make_inputs
from losscli.verify.checks import CHECKS, find_check
from tests.machinery import MACHINERY
from tests.verify.judging import put

pytestmark = pytest.mark.gpu


def asked(case, implementation):
    return {check for check in CHECKS.values() if not check.why_not(case, implementation)}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_inputs_follow_the_seed_and_lie_on_the_device(make_case, distribution):
    case = make_case(device="cuda:0", distribution=distribution)
    once, again = make_inputs(case), make_inputs(case)
    for name in case.spec.names:
        assert once[name].device == torch.device("cuda:0")
        assert torch.equal(once[name], again[name])
        assert once[name].unique().numel() > 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", MACHINERY)
def test_losscli_passes_on_a_gpu(make_case, loss, reduction, dtype):
    case = make_case(loss, device="cuda:0", reduction=reduction, dtype=dtype, distribution="normal")
    implementation = find_implementation("custom")
    results = put(case, implementation)
    assert {find_check(r.check) for r in results} == asked(case, implementation)
    assert [(r.status, r.reason) for r in results] == [(PASS, "")] * len(results)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", MACHINERY)
def test_pytorchs_own_formula_passes(make_case, loss, reduction, dtype):
    # Not in float16: there its smooth L1 on a GPU rounds the scaled mean's gradient too early.
    case = make_case(loss, device="cuda:0", reduction=reduction, dtype=dtype, distribution="normal")
    implementation = find_implementation("reference")
    results = put(case, implementation)
    # A shared gradient of PyTorch may be a little off: the layouts and broadcasts have many. Its
    # second derivatives in 16 bits take another branch where a difference rounds to beta.
    may_warn = ("layouts", "broadcasts", "second_derivatives")
    allowed = dict.fromkeys(may_warn, (PASS, WARN))
    assert {find_check(r.check) for r in results} == asked(case, implementation)
    wrong = [r for r in results if r.status not in allowed.get(r.check, (PASS,))]
    assert [(r.check, r.status, r.reason) for r in wrong] == []


def test_result_on_another_device_fails(make_case):
    on_the_host = Implementation(
        "planted", "", lambda case: lambda x, y: ((x - y) ** 2).mean().cpu()
    )
    result = put(make_case("mse", device="cuda:0"), on_the_host)[0]
    assert result.status == FAIL
    assert result.reason.endswith("torch.float32 on cuda:0, got (), torch.float32 on cpu")


ASTRAY = """
import sys
import torch
from losscli.cli import main
from losscli.implementations import IMPLEMENTATIONS, Implementation

def bind(case):
    def function(input, target):
        beyond = torch.full((1,), 7, device=input.device)
        return input.flatten()[:1][beyond].sum() + target.sum()
    return function

IMPLEMENTATIONS["functional"] = Implementation("functional", "", bind)
sys.exit(main.run(sys.argv[1:]))
"""


def test_kernel_that_breaks_the_gpu_fails_and_the_run_finishes():
    case = ["--loss", "mse", "--size", "8x24", "--dtype", "float32", "--reduction", "mean"]
    options = ["--impl", "functional,reference", "--device", "cuda:0", "--format", "json"]
    # In a process of its own, for which the GPU is lost.
    done = subprocess.run(
        [sys.executable, "-c", ASTRAY, "verify", *case, *options], capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    first, *others = json.loads(done.stdout)["results"]
    assert (first["implementation"], first["status"]) == ("functional", "fail")
    assert "CUDA error" in first["reason"]
    assert {each["implementation"] for each in others} == {"functional", "reference"}
    assert {each["reason"] for each in others} == {"cuda:0 was made unusable earlier by functional"}
