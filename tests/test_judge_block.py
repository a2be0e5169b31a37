"""The block of a verdict, the closing table and the last line."""

import typing

from msgspec.structs import replace

from losscli.judge.parts import Accuracy, JudgeReason
from losscli.reasons import Code, Word
from losscli.report.verdict_block import block, conclusion, line, summary
from tests.judging import BACKWARD, CASE, FORWARD, LAYOUTS, REPEAT, RIGHT, WRONG, verdict

BUILD = verdict(
    "DOES NOT BUILD",
    "b.py",
    reasons=(JudgeReason(Code.BUILD_FAILED, "build", "b.cpp:3: error: expected ';'"),),
    checks={},
    accuracy=Accuracy(),
    trains=None,
    log="\n".join(f"line {number}" for number in range(20)),
)


def test_block_of_a_right_file():
    text = block(RIGHT)
    assert text.startswith(
        "RIGHT  kernels/k.py, against smooth_l1 on cpu\n"
        "  dtypes: float32, float16\n"
        "  checks: 54 passed, 3 skipped\n"
        "  accuracy: value within 0.50 ulp (PyTorch 0.75), "
        "gradient within 1.25 ulp (PyTorch 1.00)\n"
        "  same bits: in every run\n"
        "  isolation: session, network\n\n"
    )
    table = text.partition("\n\n")[2].splitlines()
    assert table[0].split() == ["case", "pass", "median", "vs", "vs", "%", "of", "extra"]
    assert table[1].split() == ["reference", "compile", "limit"]
    assert table[3].split()[-8:] == ["fwd", "1.200", "ms", "1.80x", "0.90x", "62.0", "4.0", "MiB"]
    assert table[4].split()[-2:] == ["1.75-1.85", "0.88-0.92"]
    assert table[5].split()[-7:] == ["fwd+bwd", "3.100", "ms", "2.40x", "-", "95.0", "0", "B"][-7:]


def test_block_of_a_wrong_file_has_reason_case_and_line():
    lines = block(WRONG).splitlines()
    assert lines[2].startswith("  what to do: Do not assume contiguous")
    assert [*lines[:2], *lines[4:6], lines[7]] == [
        "WRONG  kernels/k.py, against smooth_l1 on cpu",
        "  why: the check layouts: expected 0.25, got 0.5 at [0, 1]",
        "    smallest case: smooth_l1 3x5 float32 mean transposed",
        f"    repeat: {REPEAT}",
        "  checks: 50 passed, 4 failed",
    ]


def test_block_says_whose_dtypes_a_model_is_judged_in():
    text = block(verdict(against="Model", dtypes=("bfloat16",)))
    assert "\n  dtypes: bfloat16, of get_inputs or as asked for\n" in text


def test_reason_that_is_no_mistake_has_its_code():
    reason = replace(LAYOUTS, code=Code.NO_WORSE_THAN_TORCH, text="5 ulp; PyTorch 6 ulp")
    text = block(verdict("NO WORSE THAN TORCH", reasons=(reason,)))
    assert "\n  why: no worse than torch, in the check layouts: 5 ulp; PyTorch 6 ulp\n" in text


def test_block_begins_with_the_reason_that_the_word_follows_from():
    reasons = (
        replace(LAYOUTS, code=Code.REFUSES, text="it raised"),
        replace(LAYOUTS, code=Code.NO_GRADIENT, text="it has none"),
        replace(LAYOUTS, text="off by 5 ulp"),
    )
    lines = block(verdict("WRONG", reasons=reasons)).splitlines()
    assert lines[1] == "  why: the check layouts: off by 5 ulp"
    assert lines[2].startswith("  what to do: ")
    assert "  refuses, in the check layouts: it raised" in lines
    assert sum("what to do" in line for line in lines) == 1


def test_block_says_which_facts_were_not_tested():
    text = block(BUILD)
    for fact in ("accuracy: not tested", "same bits: not tested", "gradient: not tested"):
        assert f"  {fact}\n" in text
    assert "  speed: not tested\n" in text


def test_file_that_does_not_build_shows_the_end_of_its_output():
    text = block(BUILD)
    assert "line 19" in text
    assert "line 11" not in text


def test_file_without_a_gradient_says_so():
    assert "gradient: none: nothing can be trained" in block(
        verdict("RIGHT BUT NO GRADIENT", trains=False)
    )


def test_verdict_from_the_cache_says_so():
    assert block(replace(RIGHT, cached=True)).splitlines()[0].endswith("(from the cache)")
    assert "1 from the cache" in summary([replace(RIGHT, cached=True), WRONG])


def test_ratio_that_is_not_decided_has_a_mark():
    ratios = {"reference": (1.0, 0.99, 1.01), "compile": (0.8, 0.5, 1.5), "custom": (1.2, 1.1, 1.3)}
    text = block(verdict(speed=(replace(FORWARD, ratios=ratios),)))
    assert "=1.00x" in text
    assert "?0.80x" in text
    assert " 1.20x" in text


def test_speed_beyond_the_limit_is_impossible():
    fast = replace(FORWARD, limit_share=1.3)
    reason = JudgeReason(Code.IMPOSSIBLE, "time", "faster", case=f"{CASE}, forward")
    assert "IMPOSSIBLE" in block(verdict("CHEATS", speed=(fast,), reasons=(reason,)))
    assert "130.0" in block(verdict(speed=(fast,)))


def long_verdicts():
    text = " ".join(f"word{number}" for number in range(60))
    others = ("reference", "functional", "compile", "custom")
    times = replace(FORWARD, case=f"{CASE} beta=0.125 heavy_tailed transposed", peak_extra_bytes=1)
    times = replace(times, ratios=dict.fromkeys(others, (123.456, 120.1, 130.9)))
    for word in typing.get_args(Word):
        reason = replace(LAYOUTS, text=text, repeat="", case=text)
        yield verdict(word, "a/" * 60 + "k.py", reasons=(reason,), speed=(times, BACKWARD))


def test_block_fits_100_columns():
    for each in long_verdicts():
        lines = block(each).splitlines()[1:]
        assert max(map(len, lines)) <= 100, each.word


def test_table_of_many_fits_100_columns_and_ends_with_a_line_to_quote():
    text = conclusion([RIGHT, WRONG, BUILD, *long_verdicts()])
    assert max(map(len, text.splitlines()[:-1])) <= 100
    assert text.splitlines()[-1].startswith("judge: ")


def test_pass_that_was_not_timed_has_no_column():
    headers = conclusion([WRONG, BUILD]).splitlines()[0]
    assert headers.split() == ["file", "verdict", "why"]
    timed = conclusion([WRONG, replace(RIGHT, speed=(FORWARD,))]).splitlines()[0]
    assert timed.split() == ["file", "verdict", "fwd", "why"]


def test_summary_counts_each_word():
    assert summary([RIGHT, WRONG, BUILD, verdict("SLOWER", "s.py")]) == (
        "judge: 2 of 4 files right, 1 wrong, 1 does not build, 1 slower than PyTorch, fastest "
        "kernels/k.py at 2.08x reference"
    )


def test_conclusion_of_one_file_has_no_table():
    assert conclusion([WRONG]) == "judge: 0 of 1 file right, 1 wrong"


def test_verdict_in_a_line_has_speed_or_reason():
    assert line(RIGHT) == "RIGHT kernels/k.py: 1.80x reference fwd, 2.40x reference fwd+bwd"
    assert line(WRONG) == "WRONG kernels/k.py: layouts: expected 0.25, got 0.5 at [0, 1]"


def on(machine, file, ratio):
    speed = replace(FORWARD, ratios={"reference": (ratio, ratio, ratio)})
    return verdict(file=file, speed=(speed,), machine=machine, host="A CPU, 64 cores")


def test_files_of_different_machines_are_in_no_ranking_together():
    made = [on("GPU 1", "a.py", 2.0), on("GPU 2", "b.py", 3.0), on("GPU 1", "c.py", 1.5), BUILD]
    tables = conclusion(made).split("judged on ")[1:]
    assert [table.partition(":\n")[0] for table in tables] == [
        "GPU 1, beside A CPU, 64 cores",
        "GPU 2, beside A CPU, 64 cores",
        "no machine",
    ]
    assert ["a.py" in table and "c.py" in table for table in tables] == [True, False, False]
    assert summary(made).endswith(
        "fastest a.py at 2.00x reference on GPU 1, beside A CPU, 64 cores, "
        "fastest b.py at 3.00x reference on GPU 2, beside A CPU, 64 cores"
    )


def test_files_of_one_machine_have_one_table():
    text = conclusion([on("GPU 1", "a.py", 2.0), on("GPU 1", "b.py", 3.0), BUILD])
    assert "judged on" not in text
    assert text.endswith("fastest b.py at 3.00x reference")


def test_machine_without_a_gpu_is_its_cpu():
    assert on("A CPU", "a.py", 1.0).kind_of_machine == "A CPU, 64 cores"
