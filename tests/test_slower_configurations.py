import json
import math
import random
from typing import Any

import pytest
from msgspec.structs import replace

from losscli.compare.configurations import configurations
from losscli.render.records import Writer, conclusion, render
from losscli.runs.measurements import Speedup
from losscli.runs.reading import read_run
from losscli.views import bench
from losscli.views.document import Table, blocks_of
from tests.handmade import around, case, failed, run, timed
from tests.parameters import titled

ONE_LOSS = (
    timed("custom", around(1.0e-3)),
    timed("reference", around(0.99e-3)),
    timed("compile", around(0.95e-3)),
    timed("custom", around(1.0e-3), pass_="forward_backward"),
    timed("compile", around(2.0e-3), pass_="forward_backward"),
)
"""Slower than one baseline in one of two configurations."""


def slower_configurations(*results):
    return bench.slower_configurations(run(*results))


def test_headline_is_in_the_record_and_read_back(tmp_path):
    path = tmp_path / "run.json"
    with Writer(run(), "json", path) as writer:
        for each in ONE_LOSS:
            writer.add(each)
    loss: dict[str, Any] = {
        "case": "mse 4096x4096 float32 mean",
        "pass": "forward",
        "mode": "device",
        "table": "",
    }
    loss |= {"baseline": "compile", "ratio": pytest.approx(0.95)}
    expected = {"configurations": 2, "slower": [loss], "too_short": 0, "untimed": 0}
    assert json.loads(path.read_text())["headline"] == expected
    assert read_run(path, "bench").headline == writer.run.headline


def several(*pair, **axes):
    """Return results of two implementations for each value of an axis."""
    ((axis, values),) = axes.items()
    return [timed(*each, **{axis: value}) for value in values for each in pair]


OTHER = case(shape=(8, 8), target_shape=(8, 8))
CONFIGURATIONS = {
    "none": [timed("custom", around(1.0)), timed("compile", around(1.1))],
    "slower than the best baseline": ONE_LOSS,
    "behind in 8 rounds of 11": [
        timed("custom", around(1.0)),
        timed("compile", around(0.95, width=0.10)),
    ],
    "behind in all rounds": [timed("custom", around(1.0)), timed("compile", around(0.95))],
    "by less than a hundredth": [timed("custom", around(1.0)), timed("compile", around(0.995))],
    "too few rounds": [
        timed("custom", around(1.0, count=3)),
        timed("compile", around(0.9, count=3)),
    ],
    "slower than any baseline, whatever the other's median": [
        timed("custom", around(1.0)),
        timed("compile", [0.7, 1.3] * 5 + [0.7]),
        timed("reference", around(0.9)),
    ],
    "strategies are no baselines": [
        timed("custom", around(1.0)),
        timed("custom:tree", around(0.5)),
    ],
    "two tables": several(("custom", around(1.0)), ("compile", around(2.0)), table=("one", "two")),
    "two modes": several(
        ("custom", around(1.0)), ("compile", around(0.5)), mode=("device", "graph")
    ),
    "no time of custom": [
        failed(),
        timed("compile", around(1.0)),
        timed("custom", around(1.0), case=OTHER),
        timed("compile", around(2.0), case=OTHER),
    ],
}


def test_notes_are_as_in_the_golden_file(golden):
    notes = {
        name: "\n".join(slower_configurations(*results)) for name, results in CONFIGURATIONS.items()
    }
    golden("slower_configurations.txt", titled(notes))


def test_disturbance_of_a_whole_round_makes_no_configuration_slower():
    slowed = [1.0, 1.0, 1.5, 1.5, 1.5, 1.0, 1.0, 1.0, 1.5, 1.0, 1.5]
    baseline = [0.95 * sample for sample in slowed]
    (configuration,) = configurations(run(timed("custom", slowed), timed("compile", baseline)))
    assert configuration.slower_than == {"compile"}


def shaped(rows, ours, theirs):
    shape = case(shape=(rows, 8), target_shape=(rows, 8))
    return [timed("custom", ours, case=shape), timed("compile", theirs, case=shape)]


def test_with_many_configurations_slower_needs_stronger_evidence():
    behind = shaped(1, around(1.0), [*around(0.95)[:-1], 1.1])  # in 10 rounds of 11
    ties = [result for n in range(2, 102) for result in shaped(n, around(1.0), around(1.0))]
    assert slower_configurations(*behind)[0].endswith(
        "the fastest baseline in 1 of 1 configuration:"
    )
    inconclusive = "inconclusive in 1 of 101 configurations; custom may be slower there:"
    assert slower_configurations(*behind, *ties)[0] == inconclusive


def test_many_slower_configurations_are_all_reported():
    twelve = around(1.0, count=12), around(0.9, count=12)
    behind = [result for n in range(1, 31) for result in shaped(n, *twelve)]
    assert (
        slower_configurations(*behind)[0]
        == "custom is slower than the fastest baseline in 30 of 30 configurations:"
    )


def test_equal_configurations_are_called_slower_in_under_1_percent_of_runs():
    for seed in range(5):
        noise = random.Random(seed)
        times = [[math.exp(noise.gauss(0, 0.1)) for _ in range(20)] for _ in range(400)]
        equals = [r for n in range(200) for r in shaped(n + 1, *times[2 * n : 2 * n + 2])]
        assert not any("slower than" in line for line in slower_configurations(*equals))


def test_answer_is_the_first_sentence_and_unclear_ratios_are_in_no_mean():
    unclear = timed("custom", around(1.0), ratios={"reference": Speedup(3.0, 0.5, 9.0)}, ratio=3.0)
    clear = timed("custom", around(1.0), case=OTHER, ratio=2.0)
    bench_ = run(timed("reference", around(2.0)), unclear, clear)
    answer = "forward: custom is 2.00x faster than eager PyTorch (reference, 1 inconclusive)"
    for format in ("table", "md"):
        assert render(bench_, format).startswith(answer)
    assert conclusion(bench_).startswith(answer)
    (only,) = bench.answers(run(unclear))
    assert only.startswith("forward: custom is inconclusive against eager PyTorch")


def test_ratios_are_to_the_first_implementation_without_a_reference():
    first, second = timed("compile", around(2.0)), timed("mine.py", around(1.0))
    pair = run(replace(first, speedup={}), replace(second, speedup={"compile": 2.0}))
    assert bench.answers(pair)[0].startswith("forward: mine.py is 2.00x faster than torch.compile")
    assert "vs\ncompile" in next(blocks_of(bench.view(pair), Table)).headers
