"""The text that a model acts on."""

import typing

from msgspec.structs import replace

from losscli.judge.feedback import advice_of
from losscli.judge.parts import JudgeReason
from losscli.losses import LOSSES, WEIGHTED
from losscli.reasons import CODES, Code, Word
from losscli.verify.checks import CHECKS
from tests.judging import BACKWARD, FORWARD, LAYOUTS, REPEAT, RIGHT, WRONG, verdict


def test_every_reason_has_advice():
    assert {code for code in Code if code.advice} == CODES


def test_every_check_has_advice():
    named = {
        name
        for check in CHECKS.values()
        for spec in (LOSSES | WEIGHTED).values()
        for name in check.results(spec) or (check.name,)
    }
    assert all(advice_of(name) for name in named)
    assert not advice_of("nothing")


def test_every_word_opens_with_a_sentence():
    for word in typing.get_args(Word):
        assert verdict(word).feedback.startswith("kernels/k.py "), word


def test_a_failed_check_is_told_with_case_values_repetition_and_advice():
    text = WRONG.feedback
    assert text.startswith("kernels/k.py is wrong. The check layouts against smooth_l1 failed, ")
    assert "in the smallest case at smooth_l1 3x5 float32 mean transposed: expected 0.25" in text
    assert f"This repeats it: {REPEAT}." in text
    assert "use the strides" in text


def test_speed_is_told_against_each_other_with_what_is_left_to_gain():
    text = RIGHT.feedback
    assert "Forward at smooth_l1 1024x1024 float32 mean, takes 1.200 ms: " in text
    assert "1.80x as fast as the reference (1.75 to 1.85); 0.90x as fast as torch.compile" in text
    assert "62% of what the memory allows: at most 1.6x is left to gain." in text
    assert "It takes 4.0 MiB beyond operands and results" in text
    assert "Forward and backward at" in text
    assert "95% of what the memory allows: hardly anything is left to gain." in text


def test_ratio_that_is_not_decided_says_so():
    open_ = replace(FORWARD, ratios={"reference": (0.8, 0.5, 1.5)})
    assert "(0.50 to 1.50, undecided)" in replace(RIGHT, speed=(open_,)).feedback


def test_of_several_cases_the_slowest_beside_the_reference_is_told():
    slow = replace(FORWARD, case="another", ratios={"reference": (0.5, 0.4, 0.6)})
    text = replace(RIGHT, speed=(FORWARD, slow, BACKWARD)).feedback
    assert "Forward at the slowest of 2 cases, another, takes" in text


def test_at_most_three_reasons_are_told():
    many = tuple(replace(LAYOUTS, check=check) for check in ("value", "sizes", "parts", "steps"))
    text = replace(WRONG, reasons=many).feedback
    assert "1 more reason may follow" in text
    assert "check steps" not in text


def test_results_that_differ_from_run_to_run_are_told():
    changed = replace(RIGHT.accuracy, deterministic=False)
    assert "differ from run to run" in replace(RIGHT, accuracy=changed).feedback


def test_reason_without_a_check_is_a_sentence():
    reason = JudgeReason(Code.IMPORT_FAILED, "build", "line 3: no module named 'x'")
    text = verdict("DOES NOT BUILD", reasons=(reason,)).feedback
    assert "cannot be loaded. Line 3: no module named 'x'. Make the file import" in text


def test_right_file_that_refuses_operands_is_right_where_it_answers():
    reason = replace(LAYOUTS, code=Code.REFUSES, text="raised ValueError: contiguous only")
    text = verdict("RIGHT", reasons=(reason,)).feedback
    assert text.startswith("kernels/k.py is right where it answers. The check layouts against ")
    assert "met a refusal, in the smallest case" in text
    assert "That is no mistake" in text


def test_reason_at_a_case_names_it():
    reason = JudgeReason(Code.PROCESS_DIED, "small", "its process ended by SIGSEGV", case="mse 3x5")
    text = verdict("CRASHED", reasons=(reason,)).feedback
    assert "crashed. At mse 3x5: its process ended by SIGSEGV. Look for" in text


def test_reason_that_begins_with_a_place_keeps_it_and_a_broken_line_has_its_name():
    reason = JudgeReason(Code.BAD_JOB, "parse", "jobs.jsonl:5: this line is not JSON.")
    text = verdict("NOT JUDGED", "", id="jobs.jsonl:5", reasons=(reason,)).feedback
    assert text.startswith("jobs.jsonl:5 was not judged, ")
    assert "itself. jobs.jsonl:5: this line is not JSON." in text


def test_feedback_is_one_line_and_part_of_the_json():
    record = WRONG.to_json()
    assert record["feedback"] == WRONG.feedback
    assert "\n" not in record["feedback"]
    assert list(record).index("feedback") == list(record).index("reasons") + 1
