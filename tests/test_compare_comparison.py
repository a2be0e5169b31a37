import math
import random

import numpy as np
import pytest
from msgspec.structs import replace

from losscli.bench.statistics import summarize
from losscli.compare.comparison import compare
from losscli.compare.noise import (
    ENOUGH_CONTROLS,
    LEAST_NOISE,
    SUPPOSED_NOISE,
    joint_z,
    noise_between_runs,
    ratios,
    uncertainties,
)
from losscli.runs.judgements import FASTER, SAME, SLOWER, UNCLEAR
from tests.fabricated import elsewhere, machine
from tests.handmade import case, failed, result, run, skipped
from tests.parameters import naming

REPEATS = range(20)


def regressed(base, new, by=0.05):
    """Return the implementations that are slower by more than a threshold."""
    return [row.after.implementation for row in compare(base, new).regressions(by)]


@pytest.mark.parametrize("noise", [{"between": b} for b in (0.0, 0.005, 0.01)] + [{"shared": 0.1}])
def test_a_kernel_slowed_by_a_tenth_is_found(noise):
    for repeat in REPEATS:
        base = machine(repeat, **noise)
        found = regressed(base, machine(100 + repeat, **noise, slowed="custom", by=1.1))
        with naming(repeat):
            assert {*found} == {"custom"}
            assert len(found) == 16 or noise != {"between": 0.0}


@pytest.mark.parametrize(
    "noise",
    [
        *({"between": between} for between in (0.0, 0.02, 0.05, 0.1, 0.3)),
        {"between": 0.01, "bursts": 0.3},  # a machine that is busy at times
        {"shared": 0.1},
    ],
    ids=str,
)
def test_noise_is_not_taken_for_a_slowdown(noise):
    for repeat in REPEATS:
        with naming(repeat):
            assert regressed(machine(repeat, **noise), machine(100 + repeat, **noise)) == []


def test_regression_is_a_row_slower_by_more_than_the_threshold_but_no_control_of_the_same_torch():
    for by, verdict in ((1.1, SLOWER), (0.8, FASTER)):
        comparison = compare(machine(1), machine(2, slowed="custom", by=by))
        assert comparison.regressions(0.15) == []
        assert {row.verdict for row in comparison.rows if not row.control} == {verdict}
    assert regressed(machine(1), machine(2, slowed="custom", by=0.8)) == []
    base, new = machine(1), machine(2, slowed="reference", by=1.3)
    assert regressed(base, new) == []
    assert {*regressed(base, elsewhere(new, torch="2.14.0"))} == {"reference"}


def test_verdict_follows_from_interval_and_threshold():
    base = result("custom", seconds=summarize([1.0] * 40))

    def verdict(median, tolerated=0.1):
        other = replace(base, seconds=summarize([median] * 40))
        (row,) = compare(run(base), run(other), tolerated).rows
        return row.verdict

    assert [verdict(m) for m in (1.0, 1.2, 0.8, 1.05)] == [SAME, SLOWER, FASTER, UNCLEAR]
    assert verdict(1.0, tolerated=0.02) == UNCLEAR


def test_means_are_by_loss_pass_implementation_mode_and_cache():
    means = compare(machine(1), machine(2, slowed="custom", by=1.1)).means()
    assert [(mean.loss, mean.pass_, mean.implementation) for mean in means] == [
        (loss, pass_, name)
        for loss in ("mse", "smooth_l1")
        for pass_ in ("forward", "forward_backward")
        for name in ("reference", "functional", "custom")
    ]
    assert {mean.rows for mean in means} == {4}
    ratios = [mean.ratio for mean in means if mean.implementation == "custom"]
    assert ratios == pytest.approx([1.1] * 4, abs=0.01)
    both = run(*modes(1).results, *(replace(r, cache="warm") for r in modes(1).results))
    found = {(mean.mode, mean.cache) for mean in compare(both, both).means()}
    assert found == {(m, c) for m in ("device", "host") for c in ("cold", "warm")}


def test_row_timed_in_only_one_run_is_listed_with_the_reason():
    both = result("custom")
    base = run(both, result("reference"), result("functional"))
    new = run(both, failed(implementation="reference"), result("custom", "forward_backward"))
    comparison = compare(base, new)
    assert [row.after for row in comparison.rows] == [both]
    assert [(each.implementation, each.reason) for each in comparison.only_before] == [
        ("reference", "failed: loss: 9 ulp"),
        ("functional", ""),
    ]
    (after,) = comparison.only_after
    assert (after.pass_, after.reason) == ("forward_backward", "")
    untimed = compare(run(skipped()), run(skipped()))
    assert (untimed.rows, untimed.only_before, untimed.only_after) == ((), (), ())


def test_a_kernel_that_fails_is_broken_and_a_control_that_fails_is_not():
    names = ("reference", "custom")
    base, new = run(*map(result, names)), run(*(failed(implementation=name) for name in names))
    assert [each.implementation for each in compare(base, new).broken] == ["custom"]
    other = compare(base, elsewhere(new, torch="2.14.0")).broken
    assert [each.implementation for each in other] == ["reference", "custom"]
    assert compare(base, run(skipped())).broken == []


def test_row_is_undecided_if_noise_can_hide_a_slowdown():
    calm, noisy = (compare(machine(1, between=b), machine(2, between=b)) for b in (0.0, 0.1))
    assert calm.undecided(0.05) == []
    assert len(noisy.undecided(0.05)) == 16
    assert (calm.blind(0.05), noisy.blind(0.05)) == (False, True)
    faster = compare(machine(1, between=0.05), machine(2, between=0.05, slowed="custom", by=0.1))
    assert faster.undecided(0.05) == []
    # Nothing is judged where there are only controls.
    assert compare(run(result("reference")), run(result("reference"))).blind(0.05)


def test_cases_with_different_inputs_are_different_rows():
    others = [
        result(case=case(seed=1)),
        result(case=case(scale=2.0)),
        result(case=case(distribution="normal")),
        result(case=case(loss="smooth_l1", params={"beta": 0.5})),
        result(table="peers"),
        result("reference"),
        result(pass_="forward_backward"),
    ]
    assert compare(run(result()), run(*others)).rows == ()


def test_gpus_of_one_model_are_comparable_and_host_times_of_different_cpus_are_not():
    gpu = {"device": "cuda:0", "gpu": "H200", "gpu_sms": 132}
    one, other = (run(result(case=case(device=name))) for name in ("cuda:0", "cuda:1"))
    comparison = compare(elsewhere(one, **gpu), elsewhere(other, **gpu | {"device": "cuda:1"}))
    assert len(comparison.rows) == 1
    assert comparison.comparable
    assert [str(unlike) for unlike in comparison.differences] == ["device: cuda:0, then cuda:1"]
    base = modes(1)
    assert not compare(base, elsewhere(base, cpu="Another CPU")).comparable
    on_device = replace(base, results=tuple(r for r in base.results if r.mode == "device"))
    assert compare(on_device, elsewhere(on_device, cpu="Another CPU")).comparable


def modes(seed, **slowed):
    """Return a run on a GPU in two modes, of which the host's is noisy."""
    steady, noisy = machine(seed, between=0.002), machine(50 + seed, between=0.03, **slowed)
    on_host = (replace(one, mode="host") for one in noisy.results)
    both = run(*steady.results, *on_host)
    return elsewhere(both, device="cuda:0", gpu="H200", gpu_sms=132)


def test_noise_of_the_gpu_is_not_used_for_the_host():
    for repeat in REPEATS:
        comparison = compare(modes(repeat), modes(100 + repeat))
        device, host = comparison.noises
        with naming(repeat):
            assert comparison.regressions(0.05) == []
            assert (device.mode, host.mode) == ("device", "host")
            assert host.value >= LEAST_NOISE["cpu"] > device.value
    gpu = elsewhere(run(result(mode="host"), result(mode="device")), device="cuda:0", gpu="H200")
    few = {noise.mode: noise.value for noise in compare(gpu, gpu).noises}
    assert few == {"host": SUPPOSED_NOISE["cpu"], "device": SUPPOSED_NOISE["cuda"]}


def test_assumed_noise_has_a_reason():
    base = run(result("reference"), result("functional"), result("custom"))
    torch = "because the runs have a different torch: 2.13.0, then 2.14.0"
    for facts, comparable, why in (
        ({}, True, "because PyTorch's own implementations have 2 of the 6 rows needed"),
        ({"torch": "2.14.0"}, True, torch),
        ({"cpu": "B"}, False, "because the runs have a different CPU: A CPU, then B"),
    ):
        comparison = compare(base, elsewhere(base, **facts))
        assert comparison.comparable is comparable
        assert [noise.why for noise in comparison.noises] == [why]


def samples(count, spread=0.02, seed=0, drift=0.0):
    noise = random.Random(seed)
    return [math.exp(noise.gauss(0, spread) + drift * index / count) for index in range(count)]


def test_the_error_of_a_median_is_what_many_runs_show():
    medians = [np.log(np.median(samples(100, seed=seed))) for seed in range(400)]
    found = uncertainties([samples(100, seed=seed) for seed in range(400)])
    assert np.median(found) == pytest.approx(np.std(medians), rel=0.25)
    assert np.median(found) >= 0.95 * np.std(medians)


def test_error_of_a_median_depends_on_the_samples_and_their_drift():
    few, many, steady, drifting, three, two, none = uncertainties(
        [
            *(samples(20), samples(2000), samples(200), samples(200, drift=0.2)),
            *([1.0, 1.1, 1.05], [1.0, 1.0], []),
        ]
    )
    assert few > 4 * many
    assert drifting > 4 * steady
    assert three == pytest.approx(math.log(1.1))  # the whole span
    assert uncertainties([[1.0], [1.0] * 9]).tolist() == [math.inf, 0.0]
    assert two == none == math.inf


def test_intervals_widen_with_the_number_of_rows_and_both_kinds_of_noise():
    assert joint_z(1) == pytest.approx(2.576, abs=1e-3)
    assert joint_z(1) < joint_z(24) < joint_z(10_000) < 5.1
    within, between, both = one(1, 1, error=0.01), one(1, 1, noise=0.01), one(1, 1, 0.01, 0, 0.01)
    assert within == between
    assert math.log(both.high) == pytest.approx(math.sqrt(2) * math.log(within.high))
    assert math.log(within.high) == pytest.approx(joint_z(1) * 0.01)


def one(before, after, error=0.0, drift=0.0, noise=0.0):
    given = [np.array([value]) for value in (before, after, error, drift, noise)]
    (ratio,) = ratios(given[0], given[1], given[2], given[3], given[4])
    return ratio


def test_interval_reaches_to_the_ratio_relative_to_the_controls():
    ratio = one(2.0, 3.0)
    assert (ratio.low, ratio.value, ratio.high) == (1.5, 1.5, 1.5)
    ratio = one(1.0, 1.2, drift=math.log(1.2))
    assert (ratio.low, ratio.high) == (pytest.approx(1.0), pytest.approx(1.2))
    ratio = one(1.0, 1.2, drift=math.log(0.8))
    assert (ratio.low, ratio.high) == (pytest.approx(1.2), pytest.approx(1.5))
    nothing = np.array([])
    assert ratios(nothing, nothing, nothing, nothing, nothing) == []


def test_noise_between_runs_is_assumed_or_measured_by_controls():
    for device in ("cpu", "cuda"):
        assert noise_between_runs([0.0] * (ENOUGH_CONTROLS - 1), device) == SUPPOSED_NOISE[device]
    noise = random.Random(0)
    logs = [noise.gauss(0, 0.04) for _ in range(500)]
    assert noise_between_runs(logs, "cpu") == pytest.approx(0.04, rel=0.1)
    # That all of them are slower is noise too; that one is, is not.
    assert noise_between_runs([0.1] * 20, "cpu") > 0.1
    assert noise_between_runs([0.0] * 20 + [3.0], "cpu") == LEAST_NOISE["cpu"]
