import json
import os
import re
from typing import Any

import pytest

from losscli.errors import EXIT_OK, UsageError
from losscli.judge.batch import check_job, lines_of, read_finished, read_jobs
from losscli.judge.job import Job
from losscli.judge.verdict import Verdict
from losscli.runs.encoding import json_line
from tests.judging import RIGHT, WRONG, verdict, write
from tests.parameters import naming, titled


@pytest.fixture
def file(tmp_path):
    return write(tmp_path, "k.py")


@pytest.fixture
def read(file):
    """Return a function that reads objects, or lines, of jobs on one file."""

    def read(*values, defaults=None):
        lines = [
            value if isinstance(value, bytes) else json.dumps({"file": file, **value}).encode()
            for value in values
        ]
        return list(read_jobs(lines, "jobs.jsonl", defaults))

    return read


def test_all_fields_are_read(read, file):
    assert read({}) == [Job(file=file, id=file)]
    job: dict[str, object] = {"loss": "smooth_l1", "sizes": [[8, 8], [4]], "dtypes": ["float64"]}
    job |= {"parameters": {"beta": 2}, "limits": {"call_seconds": 5}, "quick": True}
    [found] = read({"id": "a", **job})
    assert (found.sizes, found.dtypes, found.quick) == (((8, 8), (4,)), ("float64",), True)
    assert (found.parameters, found.limits.call_seconds) == ({"beta": 2.0}, 5.0)
    assert found.limits.build_seconds == 600.0


def test_a_line_overrides_the_defaults_field_by_field(read):
    defaults = {"loss": "mse", "limits": {"call_seconds": 1.0, "build_seconds": 2.0}}
    [one, two] = read(
        {"id": "1"}, {"id": "2", "loss": "hinge", "limits": {"call_seconds": 9}}, defaults=defaults
    )
    assert (one.loss, one.limits.call_seconds, one.limits.build_seconds) == ("mse", 1.0, 2.0)
    assert (two.loss, two.limits.call_seconds, two.limits.build_seconds) == ("hinge", 9.0, 2.0)


BROKEN: dict[str, Any] = {
    "not JSON": b'{"file": ',
    "not UTF-8": b'{"file": "\xff"}',
    "array": b"[1]",
    "number": b"17",
    "null": b"null",
    "no file": b'{"id": "a"}',
    "file missing": {"file": "nowhere.py"},
    "not a .py": {"file": "kernel"},
    "reference missing": {"reference": "nowhere.py"},
    "unknown key": {"losses": "mse"},
    "unknown limit": {"limits": {"call": 1}},
    "type": {"quick": "yes"},
    "type of a size": {"sizes": ["8x8"]},
    "unknown loss": {"loss": "mes"},
    "unknown dtype": {"dtypes": ["float31"]},
    "unknown device": {"device": "tpu"},
    "unknown reduction": {"reduction": "men"},
    "unknown parameter": {"loss": "smooth_l1", "parameters": {"bta": 1}},
    "no parameters": {"loss": "mse", "parameters": {"beta": 1}},
    "parameter out of range": {"loss": "smooth_l1", "parameters": {"beta": -1}},
    "unknown name in a call": {"loss": "smooth_l1", "call": "smooth_l1_los(input, target)"},
    "call that is no expression": {"call": "smooth_l1_loss(input, target"},
    "negative size": {"sizes": [[-8, 8]]},
    "negative limit": {"limits": {"call_seconds": -1}},
    "nested too deeply": b'{"file": ' + b"[" * 5000,
}


def test_broken_line_is_a_verdict_with_its_number_and_the_others_run(read, golden):
    told = {}
    for name, line in BROKEN.items():
        with naming(name):
            before, broken, after = read({"id": "before"}, line, {"id": "after"})
            assert (before.id, after.id) == ("before", "after")
            assert isinstance(broken, Verdict)
            assert (broken.word, broken.reasons[0].code) == ("NOT JUDGED", "bad_job")
            assert broken.reasons[0].text.startswith("jobs.jsonl:2: ")
            told[name] = re.sub("(Choose from: ).*", r"\1...", broken.reasons[0].text)
    golden("broken_jobs.txt", titled(told))


def test_ids_of_broken_and_repeated_lines(read, file):
    [one, two] = read({"id": "mine", "quick": 3}, b"{")
    assert (one.id, two.id) == ("mine", "jobs.jsonl:2")
    [one, two] = read({"id": "", "quick": 3}, {"id": "", "file": ""})
    assert (one.id, two.id) == (file, "jobs.jsonl:2")
    assert "given ''" in two.reasons[0].text
    [one, two] = read({"id": "a"}, {"id": "a"})
    assert isinstance(one, Job)
    assert "the id 'a' is that of line 1 as well" in two.reasons[0].text
    [broken] = read(b"", b"  ", b"{")  # empty lines count but are no jobs
    assert broken.id == "jobs.jsonl:3"


def test_file_that_is_no_python_is_left_to_a_verdict(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("def (")
    check_job(Job(file=str(path)))
    with pytest.raises(UsageError, match="there is no file"):
        check_job(Job(file="nowhere.py"))


def test_lines_come_as_soon_as_they_are_written():
    receiver, sender = os.pipe()
    lines = lines_of(receiver)
    os.write(sender, b"one\ntw")
    assert next(lines) == b"one"
    os.write(sender, b"o\n\nlast")
    assert (next(lines), next(lines)) == (b"two", b"")
    os.close(sender)
    assert list(lines) == [b"last"]
    os.close(receiver)


LINES = "".join(f"{json_line(each.to_json())}\n" for each in (RIGHT, WRONG))


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out.jsonl"


def test_finished_verdicts_are_read_and_the_last_line_is_repaired(output):
    assert read_finished(output) == []  # which is not there
    for text in (LINES, LINES.rstrip("\n")):
        output.write_text(text)
        assert read_finished(output) == [RIGHT, WRONG]
        assert output.read_text() == LINES
    whole, _, last = LINES.rstrip("\n").partition("\n")
    for left in (1, 20, 300):
        output.write_text(f"{whole}\n{last[:left]}")
        assert read_finished(output) == [RIGHT]
        assert output.read_text() == f"{whole}\n"


def test_verdicts_of_earlier_versions_are_read(output):
    output.write_text(json_line({**RIGHT.to_json(), "word": "NO WORSE THAN TORCH"}))
    (found,) = read_finished(output)
    assert found == verdict("SAME ERROR AS PYTORCH", speed=RIGHT.speed)
    assert (found.exit_code, found.reward, found.correct) == (EXIT_OK, RIGHT.reward, True)


@pytest.mark.parametrize("text", ["my notes", '{"id": "a", "file": "k.py"}', LINES + "mse,1.0"])
def test_resume_leaves_a_file_that_is_no_output_as_it_is(text, output):
    output.write_text(text)
    with pytest.raises(UsageError, match="this line is not a verdict"):
        read_finished(output)
    assert output.read_text() == text


def test_line_that_is_damaged_is_named_and_a_directory_refused(output, tmp_path):
    output.write_text(f'{{"id": 3}}\n{LINES}')
    with pytest.raises(UsageError, match=r"out\.jsonl:1: this line is not a verdict"):
        read_finished(output)
    assert output.read_text().endswith(LINES)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_finished(tmp_path)
