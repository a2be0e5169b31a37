"""`losscli doctor` as a command: with a broken torch, in JSON and in colour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from losscli.cli.main import run
from losscli.doctor import probes, questions
from losscli.doctor.findings import Answer, Probe, ok, problem, warning
from losscli.doctor.machine import Machine
from losscli.errors import EXIT_OK, EXIT_UNFIT, EXIT_USAGE
from losscli.implementations.sandbox.parts import NAMES
from losscli.report.tables import WIDTH

ROOT = Path(__file__).parents[1]
BROKEN = {
    "OSError: libcudart.so.13: cannot open": "raise OSError('libcudart.so.13: cannot open')",
    "ImportError: undefined symbol: iJIT": "raise ImportError('undefined symbol: iJIT')",
    "ModuleNotFoundError: No module named 'torch'": (
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    ),
    "the process was ended by SIGSEGV": "import os; os.kill(os.getpid(), 11)",
}
"""What torch/__init__.py does, by what is told of it."""


@pytest.fixture
def break_torch(tmp_path, monkeypatch):
    """Return a function that puts a torch that does something else before the real one."""

    def put(text: str) -> None:
        package = tmp_path / "broken" / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
        path = os.pathsep.join([str(ROOT), str(package.parent)])
        monkeypatch.setenv("PYTHONPATH", path)
        monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))

    return put


@pytest.mark.parametrize("told", BROKEN)
def test_broken_torch_is_told_by_a_process_of_its_own(break_torch, told):
    break_torch(BROKEN[told])
    with pytest.raises(questions.NoAnswerError, match=f"^{told}"):
        questions.ask("torch", "cpu")


def test_torch_that_hangs_is_given_up(break_torch, monkeypatch):
    break_torch("import signal; signal.pause()")
    monkeypatch.setattr(questions, "SECONDS", 0.2)
    with pytest.raises(questions.NoAnswerError, match=r"^no answer within 0.2 s$"):
        questions.ask("torch", "cpu")


def test_answer_is_read_past_text_that_torch_prints(break_torch):
    break_torch("print('hello'); raise OSError('broken')")
    with pytest.raises(questions.NoAnswerError, match=r"^OSError: broken"):
        questions.ask("torch", "cpu")


def test_real_torch_and_isolation_answer(tmp_path):
    answer = questions.ask("torch", "cpu")
    assert (answer["device"], answer["unfit"], answer["trouble"]) == ("cpu", "", "")
    reached = questions.ask("isolation", str(tmp_path), "cpu")["reached"]
    assert {"session", "open files", "memory"} <= set(reached) <= set(NAMES)


def losscli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "losscli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("told", ["OSError: libcudart.so.13: cannot open"])
def test_doctor_and_help_work_with_a_broken_torch(break_torch, told):
    break_torch(BROKEN[told])
    assert losscli("--help").returncode == EXIT_OK
    done = losscli("doctor", "--device", "cpu", "--json")
    assert (done.returncode, done.stderr) == (EXIT_UNFIT, "")
    record = json.loads(done.stdout)
    found = {finding["name"]: finding for finding in record["results"]}
    assert found["torch"]["state"] == "problem"
    assert found["torch"]["found"] == f"cannot be imported: {told}"
    unknown = [f for f in record["results"] if "looking failed" in f["found"]]
    assert unknown == []


def tell(answer: Answer, machine: Machine) -> Answer:
    """Be a probe that gives an answer."""
    return answer


@pytest.mark.parametrize("told", [told for told in BROKEN if "Error" in told])
def test_other_commands_name_the_doctor_if_torch_is_broken(break_torch, told):
    break_torch(BROKEN[told])
    done = losscli("verify", "--quick")
    message = f"torch cannot be imported: {told}. `losscli doctor` says more."
    assert (done.returncode, done.stderr) == (EXIT_UNFIT, f"losscli: error: {message}\n")


@pytest.fixture
def answers(monkeypatch):
    """Return a function that makes the probes give these answers."""

    def give(*given: Answer) -> None:
        table = [
            Probe("area", f"fact {index}", partial(tell, answer))
            for index, answer in enumerate(given)
        ]
        monkeypatch.setattr(probes, "PROBES", tuple(table))
        monkeypatch.setattr(Machine, "device", "cpu")

    return give


FINE, DOUBT = ok("well"), warning("so so", "Mend it.")
BAD = problem("bad " * 40, "Buy another. " * 12)


@pytest.mark.parametrize(
    ("given", "code", "summary"),
    [
        ((FINE,), EXIT_OK, "doctor: cpu can be used; 1 ok, 0 warnings"),
        ((FINE, DOUBT), EXIT_OK, "doctor: cpu can be used; 1 ok, 1 warning"),
        ((FINE, DOUBT, BAD), EXIT_UNFIT, "doctor: cpu cannot be used; 1 ok, 1 warning, 1 problem"),
    ],
    ids=["ok", "warning", "problem"],
)
def test_only_a_problem_exits_4(answers, capsys, given, code, summary):
    answers(*given)
    assert run(["doctor"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == summary
    assert max(map(len, lines)) <= WIDTH


def test_report_as_a_whole(answers, capsys):
    answers(FINE, DOUBT)
    run(["doctor", "--device", "cpu"])
    assert capsys.readouterr().out.splitlines() == [
        "area:",
        "  ok       fact 0  well",
        "  warning  fact 1  so so",
        "                   -> Mend it.",
        "",
        "doctor: cpu can be used; 1 ok, 1 warning",
    ]


def test_json_has_a_schema_version_and_every_finding(answers, capsys):
    answers(FINE, DOUBT)
    assert run(["doctor", "--json"]) == EXIT_OK
    record = json.loads(capsys.readouterr().out)
    del record["command"], record["created"]
    assert record == {
        "schema_version": 1,
        "kind": "doctor",
        "asked_device": "auto",
        "device": "cpu",
        "usable": True,
        "counts": {"ok": 1, "warning": 1, "problem": 0},
        "results": [
            {"area": "area", "name": "fact 0", "state": "ok", "found": "well", "advice": ""},
            {
                "area": "area",
                "name": "fact 1",
                "state": "warning",
                "found": "so so",
                "advice": "Mend it.",
            },
        ],
    }


def test_unknown_device_is_wrong_usage(capsys):
    assert run(["doctor", "--device", "gpu"]) == EXIT_USAGE
    assert "unknown device 'gpu'" in capsys.readouterr().err
