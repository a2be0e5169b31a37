"""The GPU architectures that the kernels are compiled for."""

from __future__ import annotations

import pytest

from losscli.build.architectures import VARIABLE, covers, gencode_flags
from losscli.errors import UnfitError, UsageError

SM_90 = "-gencode=arch=compute_90,code=sm_90"
PTX_90 = "-gencode=arch=compute_90,code=compute_90"
SM_100 = "-gencode=arch=compute_100,code=sm_100"
PTX_100 = "-gencode=arch=compute_100,code=compute_100"


@pytest.mark.parametrize(
    ("gpus", "variable", "flags"),
    [
        ([(10, 0), (9, 0), (9, 0)], None, (SM_90, SM_100)),
        ([], None, (SM_90, PTX_90)),
        ([(6, 1), (9, 0)], None, (SM_90,)),  # older ones are left out
        ([(8, 6)], "90;100", (SM_90, SM_100, PTX_100)),
        ([(8, 6)], "100, 90", (SM_90, SM_100, PTX_100)),
        ([], " 90 100;90", (SM_90, SM_100, PTX_100)),
        ([], "90a", (SM_90.replace("90", "90a"), PTX_90.replace("90", "90a"))),
    ],
)
def test_architectures_are_those_of_the_gpus_or_the_variable(gpus, variable, flags):
    assert gencode_flags(gpus, {VARIABLE: variable} if variable else {}) == flags


def test_wrong_or_too_old_architectures_are_refused():
    for text in ("hopper", "9.0", "sm_90", "90;x"):
        with pytest.raises(UsageError, match=r"should list architectures such as 90;100, but has"):
            gencode_flags([], {VARIABLE: text})
    with pytest.raises(UsageError, match="has '61', but the kernels need 70 or newer"):
        gencode_flags([], {VARIABLE: "61;90"})
    with pytest.raises(UnfitError, match=r"capability 7\.0 or newer; the newest here has 6\.1"):
        gencode_flags([(5, 2), (6, 1)], {})


def test_gpus_that_cuda_13_dropped_need_a_cuda_12_toolkit():
    assert "arch=compute_70" in gencode_flags([(7, 0)], {}, (12, 8))[0]
    with pytest.raises(
        UnfitError,
        match=r"CUDA 13\.0 dropped GPUs below compute capability 7\.5; the newest here has 7\.0\. "
        r"Install a CUDA 12 toolkit and a torch built for it",
    ):
        gencode_flags([(7, 0)], {}, (13, 0))
    assert gencode_flags([(7, 0), (9, 0)], {}, (13, 0)) == (SM_90,)


def test_requested_architecture_that_cuda_13_dropped_is_refused():
    message = r"has '70', but CUDA 13\.0 compiles for 75 or newer.*CUDA 12 toolkit in CUDACXX"
    with pytest.raises(UsageError, match=message):
        gencode_flags([], {VARIABLE: "70;90"}, (13, 0))


@pytest.mark.parametrize(
    ("flags", "capability", "runs"),
    [
        ((SM_90,), (9, 0), True),
        ((SM_90,), (10, 0), False),
        ((SM_90, PTX_90), (10, 0), True),
        ((SM_90, PTX_90), (8, 0), False),
        (("-gencode=arch=compute_80,code=sm_80",), (8, 6), True),
        (("-gencode=arch=compute_86,code=sm_86",), (8, 0), False),
        (("-gencode=arch=compute_90a,code=sm_90a",), (9, 0), False),
    ],
)
def test_compiled_code_runs_on_gpus_of_its_major_version(flags, capability, runs):
    assert covers(flags, [capability]) is runs
    assert covers(flags, [])
