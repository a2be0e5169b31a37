import functools
import math
from dataclasses import replace
from typing import Any

import pytest

from losscli.cases.axes import DTYPES, PASSES, Parameters
from losscli.config.expansion import asked_for, expand
from losscli.config.loader import load_config
from losscli.config.schema import Config, Exclude, Inputs, LossChoice, off_default
from losscli.errors import UsageError
from losscli.implementations import find_implementation, reference_bytes
from losscli.losses import LOSSES, REDUCTIONS, ROW_FORMS, LossSpec, find_loss
from losscli.verify import pool, runner
from losscli.verify.checks import CHECKS, behaviour, find_check
from losscli.verify.needed_memory import bytes_to_verify
from tests.machinery import MACHINERY
from tests.parameters import few, naming

CONFIG = Config(
    losses=(LossChoice("mse"),), sizes=((8, 24), (64, 48), (5, 7)), implementations=("reference",)
)


def changed(**changes: Any) -> Config:
    return replace(CONFIG, **changes)


def jobs_of(config, *checks, device="cpu"):
    return runner.plan(config, device, lambda device: 2**40, checks)


def test_checks_are_found_by_the_names_that_they_had():
    renamed = {old: check for check in CHECKS.values() for old in check.formerly}
    assert renamed["retained"].name == "retain_graph"
    assert {old: find_check(old) for old in renamed} == renamed
    assert not {*renamed} & {*CHECKS}


def planned(config, device="cpu"):
    shapes = {name: [] for name in CHECKS}
    for job in jobs_of(config, device=device):
        for _, check in job.trials:
            shapes[check.name].append(job.case.shape)
    return shapes


@pytest.mark.parametrize("losses", ["mse", "cross_entropy"])
@pytest.mark.parametrize("threads", [1, 2, 16, 128])
def test_determinism_gives_every_thread_of_a_cpu_several_parts(monkeypatch, losses, threads):
    monkeypatch.setattr(behaviour, "core_count", lambda: threads)
    small = changed(losses=(LossChoice(losses),))
    ((rows, columns),) = planned(small)["determinism"]
    # A kernel of rows gives a thread whole rows: at least 16,384 elements of them.
    parts = min(rows // math.ceil(2**14 / columns), rows * columns // 2**14)
    assert min(3 * threads, 60) <= parts
    assert rows * columns <= pool.LARGEST


TWO = {"dtypes": ("float32", "float64"), "reductions": ("none", "sum")}
OF_INPUTS = [
    {"tables": (CONFIG, changed(inputs=each))} for each in (Inputs(seed=1), Inputs(scale=4.0))
]
RUNS_AT: list[Any] = [
    ({}, "cuda:0", "determinism", [(64, 48)]),
    ({}, "cuda:0", "layouts", [(64, 48)]),
    # A size that is large enough already, the largest that fits, one that is excluded.
    ({"sizes": ((8, 24), (1024, 1024))}, "cpu", "determinism", [(1024, 1024)]),
    ({"sizes": ((8, 24), (2**20, 2**20))}, "cuda:0", "determinism", [(8, 24)]),
    ({"exclude": (Exclude(size=(64, 48)),)}, "cuda:0", "determinism", [(8, 24)]),
    (TWO, "cpu", "layouts", [(64, 48)] * 4),  # once for each dtype and reduction
    ({"tables": (changed(sizes=((8, 24),)), CONFIG)}, "cuda:0", "determinism", [(64, 48)]),
    *(({}, "cpu", check, [*CONFIG.sizes]) for check in ("value", "gradients")),
    ({}, "cpu", "streams", [(64, 48)]),  # which it has to skip
    ({}, "cuda:0", "streams", [*CONFIG.sizes]),
    ({"tables": (CONFIG, CONFIG)}, "cpu", "value", [*CONFIG.sizes]),
    *((each, "cpu", "value", [*CONFIG.sizes] * 2) for each in OF_INPUTS),
    *((each, "cuda:0", "determinism", [(64, 48)]) for each in OF_INPUTS),
]
"""What is changed, the device, a check, and the sizes that it runs at."""


def test_a_check_runs_on_every_case_or_once_at_the_largest_size_that_can_run():
    for changes, device, check, shapes in RUNS_AT:
        with naming(changes, device, check):
            assert planned(changed(**changes), device)[check] == shapes


def test_layouts_run_for_only_one_distribution():
    config = changed(inputs=Inputs(("uniform", "heavy_tailed")))
    jobs = jobs_of(config)
    asked = [job for job in jobs if CHECKS["layouts"] in [check for _, check in job.trials]]
    assert [job.case.distribution for job in asked] == ["normal"]


def test_tolerance_of_a_case_applies_to_its_layouts(make_case):
    trials = [(find_implementation("reference"), check) for check in CHECKS.values()]
    jobs = runner.split(make_case("mse", shape=(1024, 1024)), trials, loosened=16.0)
    shapes = [(job.case.shape, job.case.target_shape) for job in jobs]
    assert shapes[0] == ((1024, 1024), (1024, 1024))
    assert len({*shapes}) == len(jobs) > 5
    assert {job.loosened for job in jobs} == {16.0}


@functools.cache
def thorough_cases():
    """The cases of `-c thorough` on a GPU."""
    return [
        case for block in load_config("thorough", {}).blocks for case in expand(block, "cuda:0")
    ]


def test_thorough_has_all_of_the_default_large_and_ragged_sizes_and_every_dtype():
    cases = thorough_cases()
    assert {(c.loss, c.dtype) for c in cases if c.elements == 2**30} == {
        (loss, dtype) for loss in LOSSES for dtype in DTYPES
    }
    assert {c.distribution for c in cases} >= {"uniform", "normal", "heavy_tailed", "boundary"}
    assert any(extent % 2 for c in cases for extent in c.shape)
    assert {c.loss for c in cases if c.elements > 2**31} == {*LOSSES, "cross_entropy"}
    names = {case.name for case in expand(load_config("smoke", {}), "cuda:0")}
    assert names <= {case.name for case in cases}


@pytest.mark.slow
def test_thorough_stays_small_on_a_cpu():
    config = load_config("thorough", {"losses": MACHINERY})
    jobs = jobs_of(config)
    assert max(job.case.elements for job in jobs) < 2**25


@functools.cache
def default_trials():
    """Return each case and check of own kernels of the default config, once."""
    jobs = jobs_of(load_config("smoke", {}))
    return [
        (job.case, check.name)
        for job in jobs
        for implementation, check in job.trials
        if implementation.name == "custom"
    ]


@functools.cache
def default_cases():
    return [case for table in load_config("smoke", {}).blocks for case in expand(table, "cpu")]


@pytest.mark.parametrize("check", ["value", "gradients"])
def test_default_covers_every_loss_dtype_and_reduction(check):
    kinds = {
        (loss, dtype, reduction)
        for loss in (*LOSSES, *ROW_FORMS)
        for dtype in DTYPES
        for reduction in find_loss(loss).reductions
    }
    planned = {(c.loss, c.dtype, c.reduction) for c, name in default_trials() if name == check}
    assert kinds - planned == set()


@pytest.mark.parametrize("loss", few(ROW_FORMS))
def test_default_runs_every_check_of_a_loss_over_rows_with_its_defaults_and_off_them(loss):
    custom, spec = find_implementation("custom"), find_loss(loss)
    own = [case for case in default_cases() if case.loss == loss]
    applying = {
        name
        for name, check in CHECKS.items()
        if any(not check.missing(case) and not check.why_not(case, custom) for case in own)
    }
    planned = [(case, name) for case, name in default_trials() if case.loss == loss]
    assert applying - {name for _, name in planned} == set()
    params = {case.params for case, name in planned if name == "gradients"}
    assert {Parameters(spec.resolve({})), Parameters(off_default(spec))} <= params


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("pass_", PASSES)
def test_rows_config_times_every_loss_over_rows(device, pass_):
    timed = {
        case.loss
        for table in load_config("rows", {}).blocks
        for case in expand(table, device)
        if asked_for(table, case, "custom", pass_) and asked_for(table, case, "reference", pass_)
    }
    assert timed == set(ROW_FORMS)


def test_a_table_runs_its_checks_alone(tmp_path):
    file = tmp_path / "tables.yaml"
    file.write_text(
        "losses: mse\nsizes: 8x24\nimplementations: reference\ntables:\n"
        "  - {title: some, checks: [value, layouts]}\n"
        "  - {title: more, sizes: 5x7, checks: parts}\n"
    )
    shapes = planned(load_config(str(file), {}))
    assert {name: own for name, own in shapes.items() if own} == {
        "value": [(8, 24)],
        "layouts": [(8, 24)],
        "non_uniform_grad_output": [(64, 101)],
    }


def test_a_check_that_no_table_lists_is_refused(tmp_path):
    file = tmp_path / "some.yaml"
    file.write_text("losses: mse\nsizes: 8x24\nchecks: value\n")
    with pytest.raises(UsageError, match="repeated_backward is among the checks of no table"):
        jobs_of(load_config(str(file), {}), "repeated_backward")


MAIN = ("value", "gradients", "layouts", "boundary_sizes", "broadcasts", "repeated_backward")


def test_quick_has_every_loss_in_float32_every_reduction_and_the_main_checks():
    jobs = jobs_of(load_config("quick", {}))
    assert {job.case.loss for job in jobs if job.case.dtype == "float32"} >= set(LOSSES)
    assert {job.case.reduction for job in jobs} == set(REDUCTIONS)
    for check in MAIN:
        found = {job.case.loss for job in jobs_of(load_config("quick", {}), check)} & {*LOSSES}
        assert found == {n for n, s in LOSSES.items() if check != "broadcasts" or takes_rows(s)}


def takes_rows(spec: LossSpec) -> bool:
    """Tell whether a target may be one row for all rows of the input."""
    shapes = [(8, 24), (24,), *[(8, 24)] * (len(spec.names) - 2)]
    return not spec.refused(shapes)


SPOKEN_FOR = (
    ("custom", ("mean", "sum"), ["mean"]),
    ("custom", ("none", "sum"), ["none", "sum"]),
    ("reference", ("mean", "sum"), ["mean", "sum"]),
)


def test_mean_speaks_for_a_sum_of_own_kernels_alone():
    for implementation, reductions, due in SPOKEN_FOR:
        config = changed(implementations=(implementation,), reductions=reductions)
        for check in ("layouts", "boundary_sizes", "broadcasts", "determinism"):
            assert [job.case.reduction for job in jobs_of(config, check)] == due, check


def test_a_target_of_another_shape_makes_another_case(make_case):
    whole, row = make_case(target_shape=(37, 101)), make_case(target_shape=(101,))
    assert CHECKS["value"].key(whole) != CHECKS["value"].key(row)


INAPPLICABLE: dict[str, Any] = {
    "numeric applies only to float64": ({}, {"dtypes": ("float64",)}),
    "rounding applies only to float16 and bfloat16 without a reduction": (
        *({}, {"dtypes": ("bfloat16",), "reductions": ("none",)}),
    ),
    "large_outputs applies only to losses without a reduction": ({}, {"reductions": ("none",)}),
    "branches applies only to losses with a non-differentiable point, and cases with elements": (
        *({}, {"losses": (LossChoice("hinge"),)}),
    ),
    "memory needs --pass forward_backward": ({"passes": ("forward",)}, {}),
}


def test_check_that_applies_to_no_case_names_its_cases():
    for told, (changes, applying) in INAPPLICABLE.items():
        check = told.split()[0]
        with pytest.raises(UsageError, match=f"no check applies to these cases: {told}"):
            jobs_of(changed(**changes), check)
        assert jobs_of(changed(**applying), check)


def test_jobs_know_the_losses_that_the_run_asks_of_each_implementation():
    losses = (LossChoice("mse"), LossChoice("hinge"))
    both, own = changed(losses=losses), changed(losses=losses, implementations=("custom",))
    strategy = changed(implementations=("custom:tree",))
    for config, due in (
        (CONFIG, {"reference": ("mse",)}),
        (Config(tables=(both, CONFIG)), {"reference": ("mse", "hinge")}),
        (Config(tables=(own, strategy)), {"custom": ("mse", "hinge"), "custom:tree": ("mse",)}),
    ):
        jobs = jobs_of(config)
        assert jobs
        assert all(job.beside == due for job in jobs)


NOTHING_TO_CHECK: list[tuple[str, str, dict[str, Any]]] = [
    ("branches of", "mse", {}),  # without a kink
    ("rounding of", "mse", {"dtype": "bfloat16"}),
    ("rounding of", "mse", {"dtype": "float32", "reduction": "none"}),
    ("large_outputs of", "smooth_l1", {}),
    ("large_outputs of", "weighted_cross_entropy", {}),
    ("allocations of", "mse", {}),  # of who plans temporaries
    ("float64_sums by custom of", "mse", {"dtype": "float32"}),
    ("float64_sums by custom of", "mse", {"dtype": "float64", "reduction": "none"}),
]


def test_checks_do_not_apply_where_there_is_nothing_to_check(make_case):
    for words, loss, changes in NOTHING_TO_CHECK:
        implementation = find_implementation("custom" if "custom" in words else "reference")
        with naming(words, loss, changes):
            trials = [(implementation, CHECKS[words.split()[0]])]
            assert not runner.split(make_case(loss, **changes), trials)


def test_check_that_does_not_apply_is_left_out_beside_others():
    jobs = jobs_of(CONFIG, "value", "numeric")
    assert {check.name for job in jobs for _, check in job.trials} == {"value"}


def test_config_that_excludes_everything_is_not_blamed_on_the_check():
    config = changed(exclude=(Exclude(loss="mse"),))
    assert jobs_of(config, "numeric") == []


def test_the_oracle_takes_a_gib_beside_inputs_and_gradients_on_a_gpu_and_two_for_long_formulas():
    implementation = find_implementation("custom")
    for case in thorough_cases():
        both = 2 * case.item_bytes * (case.elements + math.prod(case.target_shape))
        # PyTorch's formula, for its error.
        forward = case.stored_bytes + reference_bytes(case, case.spec.temporaries - 2)
        if case.reduction == "none":  # and the loss and an incoming gradient
            both += 2 * case.item_bytes * case.elements
            forward += case.item_bytes * case.elements
        most = max(both, forward)
        gib = 1 if case.loss in MACHINERY else 2
        assert bytes_to_verify(case, "forward_backward", [implementation]) <= most + gib * 2**30
