import typing

from msgspec.structs import replace

from losscli.judge.verdict_parts import Accuracy, JudgeReason, advice_of
from losscli.losses import LOSSES, WEIGHTED
from losscli.reasons import CODES, Code, Word
from losscli.report.verdict_block import block, conclusion, line
from losscli.verify.checks import CHECKS
from tests.judging import BACKWARD, CASE, FORWARD, LAYOUTS, RIGHT, WRONG, verdict
from tests.parameters import titled

BUILD = verdict(
    "DOES NOT BUILD",
    "b.py",
    reasons=(JudgeReason(Code.BUILD_FAILED, "build", "b.cpp:3: error: expected ';'"),),
    checks={},
    accuracy=Accuracy(),
    trains=None,
    log="\n".join(f"line {number}" for number in range(20)),
)


def failing(*changes, word="WRONG", **more):
    """Return a verdict for the reasons that a failed check of layouts is changed to."""
    return verdict(word, reasons=tuple(replace(LAYOUTS, **each) for each in changes), **more)


def for_reason(word, code, stage, text, *, file="kernels/k.py", id="a", **more):
    return verdict(word, file, id=id, reasons=(JudgeReason(code, stage, text, **more),))


RATIOS = {"reference": (1.0, 0.99, 1.01), "compile": (0.8, 0.5, 1.5), "custom": (1.2, 1.1, 1.3)}
FAST = replace(FORWARD, limit_share=1.3)
SLOW = replace(FORWARD, case="another", ratios={"reference": (0.5, 0.4, 0.6)})
IMPOSSIBLE = JudgeReason(Code.IMPOSSIBLE, "time", "faster", case=f"{CASE}, forward")
VERDICTS = {
    "right": RIGHT,
    "wrong": WRONG,
    "does not build": BUILD,
    "dtypes of a model": verdict(against="Model", dtypes=("bfloat16",)),
    "same error as PyTorch": failing(
        {"code": Code.SAME_ERROR_AS_PYTORCH, "text": "5 ulp; PyTorch 6 ulp"},
        word="SAME ERROR AS PYTORCH",
    ),
    "the reason that the word follows from is first": failing(
        {"code": Code.UNSUPPORTED_INPUT, "text": "it raised"},
        {"code": Code.NO_GRADIENT, "text": "it has none"},
        {"text": "off by 5 ulp"},
    ),
    "right where it answers": failing(
        {"code": Code.UNSUPPORTED_INPUT, "text": "raised ValueError: contiguous only"}, word="RIGHT"
    ),
    "more than three reasons": failing(
        *(
            {"check": check}
            for check in ("value", "boundary_sizes", "non_uniform_grad_output", "repeated_backward")
        )
    ),
    "no gradient": verdict("RIGHT BUT NO GRADIENT", trains=False),
    "from the cache": replace(RIGHT, cached=True),
    "undecided ratios": verdict(speed=(replace(FORWARD, ratios=RATIOS),)),
    "slowest of several cases": verdict(speed=(FORWARD, SLOW, BACKWARD)),
    "beyond the limit and accepted": verdict(speed=(FAST,)),
    "impossible": verdict("CHEATS", speed=(FAST,), reasons=(IMPOSSIBLE,)),
    "not deterministic": replace(RIGHT, accuracy=replace(RIGHT.accuracy, deterministic=False)),
    "import failed": for_reason(
        "DOES NOT BUILD", Code.IMPORT_FAILED, "build", "line 3: no module named 'x'"
    ),
    "crashed at a case": for_reason(
        "CRASHED", Code.PROCESS_DIED, "small", "its process ended by SIGSEGV", case="mse 3x5"
    ),
    "broken line": for_reason(
        *("NOT JUDGED", Code.BAD_JOB, "parse", "jobs.jsonl:5: this line is not JSON."),
        file="",
        id="jobs.jsonl:5",
    ),
}


def test_blocks_are_as_in_the_golden_file(golden):
    golden("judge_block.txt", titled({name: block(each) for name, each in VERDICTS.items()}))


def test_feedback_is_as_in_the_golden_file(golden):
    golden("feedback.txt", titled({name: each.feedback for name, each in VERDICTS.items()}))
    for each in VERDICTS.values():
        assert "\n" not in each.feedback


def test_conclusions_are_as_in_the_golden_file(golden):
    different = [on("GPU 1", "a.py", 2.0), on("GPU 2", "b.py", 3.0), on("GPU 1", "c.py", 1.5)]
    several = {
        "one file": [WRONG],
        "one from the cache": [replace(RIGHT, cached=True), WRONG],
        "each word": [RIGHT, WRONG, BUILD, verdict("SLOWER", "s.py")],
        "nothing timed": [WRONG, BUILD],
        "one pass timed": [WRONG, replace(RIGHT, speed=(FORWARD,))],
        "different machines": [*different, BUILD],
        "one machine": [on("GPU 1", "a.py", 2.0), on("GPU 1", "b.py", 3.0), BUILD],
    }
    golden("conclusion.txt", titled({name: conclusion(made) for name, made in several.items()}))


def on(machine, file, ratio):
    speed = replace(FORWARD, ratios={"reference": (ratio, ratio, ratio)})
    return verdict(file=file, speed=(speed,), machine=machine, host="A CPU, 64 cores")


def long_verdicts():
    text = " ".join(f"word{number}" for number in range(60))
    others = ("reference", "functional", "compile", "custom")
    times = replace(FORWARD, case=f"{CASE} beta=0.125 heavy_tailed transposed", peak_extra_bytes=1)
    times = replace(times, ratios=dict.fromkeys(others, (123.456, 120.1, 130.9)))
    for word in typing.get_args(Word):
        reason = replace(LAYOUTS, text=text, repeat="", case=text)
        yield verdict(word, "a/" * 60 + "k.py", reasons=(reason,), speed=(times, BACKWARD))


def test_blocks_and_tables_fit_100_columns_and_end_with_a_line_to_quote():
    for each in long_verdicts():
        lines = block(each).splitlines()[1:]
        assert max(map(len, lines)) <= 100, each.word
    text = conclusion([RIGHT, WRONG, BUILD, *long_verdicts()])
    assert max(map(len, text.splitlines()[:-1])) <= 100
    assert text.splitlines()[-1].startswith("judge: ")


def test_verdict_in_a_line_has_speed_or_reason_and_its_machine_is_named_once():
    assert on("A CPU", "a.py", 1.0).kind_of_machine == "A CPU, 64 cores"
    assert line(RIGHT) == "RIGHT kernels/k.py: 1.80x reference fwd, 2.40x reference fwd+bwd"
    assert line(WRONG) == "WRONG kernels/k.py: layouts: expected 0.25, got 0.5 at [0, 1]"


def test_every_reason_check_and_word_has_advice():
    assert {code for code in Code if code.advice} == CODES
    named = {
        name
        for check in CHECKS.values()
        for spec in (LOSSES | WEIGHTED).values()
        for name in check.results(spec) or (check.name,)
    }
    assert all(advice_of(name) for name in named)
    assert not advice_of("nothing")
    for word in typing.get_args(Word):
        assert verdict(word).feedback.startswith("kernels/k.py "), word


def test_feedback_follows_the_reasons_in_the_json():
    keys = list(WRONG.to_json())
    assert keys.index("feedback") == keys.index("reasons") + 1
    assert WRONG.to_json()["feedback"] == WRONG.feedback
