import math
from itertools import chain, pairwise

import pytest

from losscli.render.html.page import styles
from losscli.render.html.picture import draw, ratio, shape_at
from losscli.render.html.svg import (
    Axis,
    Scale,
    byte_ticks,
    escape,
    linear_ticks,
    log_ticks,
    percent_ticks,
    printable,
    ratio_ticks,
    second_ticks,
    shortened,
    spaced,
)
from losscli.views.document import Plot, Point, Series, blocks_of
from losscli.views.plots import of_bench
from tests.handmade import case_of, result, run
from tests.test_html_page import measured


def test_ticks_are_round():
    for ticks, low, high, expected in (
        (byte_ticks, 5000, 2**31, "32 KiB, 256 KiB, 2 MiB, 16 MiB, 128 MiB, 1 GiB"),
        (byte_ticks, 2**20, 2**22, "1 MiB, 2 MiB, 4 MiB"),
        (byte_ticks, 1.2 * 2**30, 1.9 * 2**30, "1.2 GiB, 1.4 GiB, 1.6 GiB, 1.8 GiB"),
        (second_ticks, 2e-6, 3e-2, "10 us, 100 us, 1 ms, 10 ms"),
        (second_ticks, 2e-3, 8e-3, "2 ms, 5 ms"),
        (second_ticks, 12.9e-3, 14.1e-3, "13 ms, 13.2 ms, 13.4 ms, 13.6 ms, 13.8 ms, 14 ms"),
        (log_ticks, 0.01, 100, "0.01, 0.1, 1, 10, 100"),
        (log_ticks, 1, 1e6, "1, 10, 100, 1000, 10,000, 1e5, 1e6"),
        (log_ticks, 8, 300, "10, 20, 50, 100, 200"),
        (log_ticks, 85, 101, "85, 90, 95, 100"),
        (ratio_ticks, 0.02, 7.7, "0.02x, 0.05x, 0.1x, 0.2x, 0.5x, 1x, 2x, 5x"),
        (ratio_ticks, 0.5, 20, "0.5x, 1x, 2x, 5x, 10x, 20x"),
        (ratio_ticks, 0.95, 1.25, "1.0x, 1.1x, 1.2x"),
        (ratio_ticks, 0.9, 2.8, "1.0x, 1.5x, 2.0x, 2.5x"),
        (ratio_ticks, 0.63, 1.83, "0.8x, 1.0x, 1.2x, 1.4x, 1.6x, 1.8x"),
        (percent_ticks, 0.0, 1.1, "0 %, 20 %, 40 %, 60 %, 80 %, 100 %"),
        (linear_ticks, -3, 3, "-3, -2, -1, 0, 1, 2, 3"),
    ):
        assert ", ".join(text for _, text in ticks(low, high)) == expected


def test_ticks_that_would_touch_are_left_out():
    crowded = [(float(n), "10 MiB") for n in range(1, 41)]
    kept = [value for value, _ in spaced(crowded, Scale(1, 40, 0, 400))]
    assert 4 <= len(kept) <= 10
    assert min(b - a for a, b in pairwise(kept)) * 400 / 39 > 40


def test_scale_keeps_values_within_its_ends_and_an_axis_has_a_length():
    scale = Scale(1, 100, 0, 200, log=True)
    assert [scale(value) for value in (0.1, 1, 10, 100, 1e9)] == pytest.approx(
        [0, 0, 100, 200, 200]
    )
    for values in ([], [3.0], [3.0, 3.0], [1e300, 1e-300], [0.0, 5.0]):
        for axis in (Axis("", log_ticks, log=True), Axis("", linear_ticks)):
            scale = axis.scale(values, 0, 100)
            assert scale.low < scale.high < math.inf
            assert axis.ticks(scale.low, scale.high) is not None


def test_of_many_losses_a_plot_has_the_medians_of_about_the_same_size():
    few = measured(sizes=(64, 65, 1024))
    many = measured(sizes=(64, 65, 1024), losses=("mse", "l1", "log_cosh"))
    (mse, _), (all_losses, _) = (
        [each for each in blocks_of(tuple(of_bench(run)), Plot) if each.name.startswith("time-")][
            :2
        ]
        for run in (few, many)
    )
    assert len(mse.series[0].points) == 3
    assert len(all_losses.series[0].points) == 2


def test_plots_of_bandwidth_and_of_matrix_products_have_names_of_their_own():
    def shares(loss, *shapes):
        return [result("custom", case=case_of(loss, s), limit_gbps=100.0) for s in shapes]

    rows = [
        shares(loss, (64, 64), (128, 64)) for loss in ("mse", "l1", "log_cosh", "huber", "hinge")
    ]
    products = shares("linear_cross_entropy", *((n, 8, 32) for n in range(10, 60)))
    plots = [*blocks_of(tuple(of_bench(run(*chain(*rows, products)))), Plot)]
    names = [plot.name for plot in plots]
    assert {"limit-forward", "products-forward"} <= {*names}
    assert len(names) == len({*names})


def test_usual_implementations_have_the_same_colours_in_every_report_and_marks_of_other_shapes():
    assert styles(["mine.py", "reference", "custom"]) == {"custom": 0, "reference": 1, "mine.py": 4}
    many = styles([f"{n}.py" for n in range(20)])
    assert set(many.values()) == {4, 5, 6, 7, 8, 9}
    assert len({shape_at(style, 10, 10) for style in range(4)}) == 4


def test_forest_plot_tells_ratio_and_interval_and_draws_the_baseline():
    series = (Series("custom", (Point("mse 8x8", 2.0, low=1.9, high=2.1),)),)
    sides = ("slower", "faster than reference")
    plot = Plot("speedup", "Speedup", "forest", series, "ratio", band=0.03, sides=sides)
    picture = draw(plot, {"custom": 0})
    for told in ("mse 8x8", "2.00x (1.90-2.10)", "faster than reference", 'class="base"'):
        assert told in picture.frame + picture.drawn
    assert picture.legend == ((0, "custom"),)


def test_ratio_has_few_digits():
    values = {5e-5: "5e-5x", 0.0123: "0.012x", 0.5: "0.50x", 12.346: "12.35x", 1234.5: "1234x"}
    for value, text in {**values, 523619.0: "5e5x"}.items():
        assert ratio(value) == text


def test_line_plot_marks_the_cache_where_sizes_fit_into_it():
    series = (Series("custom", (Point("a", 2.0**20, 1.0), Point("b", 2.0**24, 2.0))),)
    for end, marked in ((2**22, True), (2**10, False)):
        plot = Plot("p", "P", "lines", series, "bytes", "seconds", cache_bytes=end)
        assert ('class="band"' in draw(plot, {"custom": 0}).frame) is marked


def test_samples_beyond_the_axis_are_counted():
    samples = [n / 1000 for n in range(-10, 11)]
    ticks = [(0, x) for x in samples] + [(1, x) for x in (*samples, 3.0)]
    points = tuple(Point("1 ms", x, process, -0.006, 0.006) for process, x in ticks)
    plot = Plot("s", "Samples", "strips", (Series("custom", points),), "fraction")
    body = draw(plot, {"custom": 0}).drawn
    assert "43 samples, 1 at the ends or beyond" in body
    assert body.count('class="tick"') == 2


def test_text_of_a_record_is_escaped_printable_and_shortened_in_its_middle():
    odd = "\N{REPLACEMENT CHARACTER}"
    assert escape("<a href='x'>&\x00") == f"&lt;a href=&#x27;x&#x27;&gt;&amp;{odd}"
    assert printable("a\nb\tc\ud800") == f"a\nb\tc{odd}"
    assert shortened("a" * 50 + "b" * 50, 30) == "a" * 19 + "…" + "b" * 10
    assert shortened("short") == "short"
