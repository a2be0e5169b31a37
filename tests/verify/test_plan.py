"""Which checks are put to which cases."""

from __future__ import annotations

from losscli.config.schema import Config, Exclude, Inputs, LossChoice
from losscli.verify import runner
from losscli.verify.checks import CHECKS

CONFIG = Config(
    losses=(LossChoice("mse"),), sizes=((8, 24), (64, 48), (5, 7)), implementations=("reference",)
)
PLENTY = 2**40


def planned(config, free=PLENTY, device="cpu"):
    """The shapes that each check is put to."""
    shapes = {name: [] for name in CHECKS}
    for job in runner.plan(config, device, lambda device: free):
        for _, check in job.trials:
            shapes[check.name].append(job.case.shape)
    return shapes


def test_value_and_gradients_are_asked_of_every_case():
    shapes = planned(CONFIG)

    assert shapes["value"] == shapes["gradients"] == list(CONFIG.sizes)


def test_the_largest_size_is_asked_for_its_determinism_and_its_layouts():
    shapes = planned(CONFIG)

    assert shapes["determinism"] == shapes["layouts"] == [(64, 48)]


def test_a_size_that_does_not_fit_leaves_determinism_to_the_next():
    config = Config(**{**vars(CONFIG), "sizes": ((8, 24), (2**20, 2**20))})

    assert planned(config)["determinism"] == [(8, 24)]


def test_an_excluded_size_leaves_them_to_the_next():
    config = Config(**{**vars(CONFIG), "exclude": (Exclude(size=(64, 48)),)})

    assert planned(config)["determinism"] == [(8, 24)]


def test_each_dtype_and_reduction_is_asked_for_its_layouts():
    config = Config(
        **{**vars(CONFIG), "dtypes": ("float32", "float64"), "reductions": ("none", "sum")}
    )

    assert planned(config)["layouts"] == [(64, 48)] * 4


def test_one_distribution_is_asked_for_its_layouts_which_are_normal_anyway():
    config = Config(**{**vars(CONFIG), "inputs": Inputs(("uniform", "heavy_tailed"))})

    jobs = runner.plan(config, "cpu", lambda device: PLENTY)

    asked = [job for job in jobs if CHECKS["layouts"] in [check for _, check in job.trials]]
    assert [job.case.distribution for job in asked] == ["normal"]


def test_what_needs_a_gpu_is_said_once_on_a_cpu_and_asked_of_every_case_on_a_gpu():
    assert planned(CONFIG)["streams"] == [(64, 48)]
    assert planned(CONFIG, device="cuda:0")["streams"] == list(CONFIG.sizes)


def test_a_tolerance_of_a_case_holds_in_its_layouts_as_well(make_case):
    trials = [(None, check) for check in CHECKS.values()]

    jobs = runner.split(make_case("mse", shape=(1024, 1024)), trials, loosened=16.0)

    assert [job.case.shape for job in jobs] == [(1024, 1024), (67, 301)]
    assert {job.loosened for job in jobs} == {16.0}
