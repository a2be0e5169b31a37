import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from losscli.cli.main import run
from losscli.doctor import probes, questions
from losscli.doctor.findings import Probe, ok, problem, warning
from losscli.doctor.machine import Machine
from losscli.errors import EXIT_OK, EXIT_UNFIT, EXIT_USAGE
from losscli.implementations.sandbox.isolation_parts import NAMES
from losscli.render.text import WIDTH
from tests.parameters import SLOW

ROOT = Path(__file__).parents[1]
MISSING = "ModuleNotFoundError: No module named 'torch'"
LIBRARY = "OSError: libcudart.so.13: cannot open"
BROKEN = {
    LIBRARY: "print('hello'); raise OSError('libcudart.so.13: cannot open')",
    "ImportError: undefined symbol: iJIT": "raise ImportError('undefined symbol: iJIT')",
    MISSING: "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')",
    "the process was ended by SIGSEGV": "import os; os.kill(os.getpid(), 11)",
}
"""What torch/__init__.py does, by what is told of it."""


@pytest.fixture
def break_torch(tmp_path, monkeypatch):
    """Return a function that puts a torch that does something else before the real one."""

    def put(text):
        package = tmp_path / "broken" / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(package.parent)]))
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
    with pytest.raises(questions.NoAnswerError, match=r"^no response within 0.2 s$"):
        questions.ask("torch", "cpu")


def test_real_torch_answers():
    answer = questions.ask("torch", "cpu")
    assert (answer["device"], answer["unfit"], answer["trouble"]) == ("cpu", "", "")


@SLOW
def test_real_isolation_answers(tmp_path):
    reached = questions.ask("isolation", str(tmp_path), "cpu")["reached"]
    assert {"session", "open files", "memory"} <= set(reached) <= set(NAMES)


def losscli(*arguments):
    command = [sys.executable, "-m", "losscli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@SLOW
def test_doctor_and_help_work_with_a_broken_torch(break_torch):
    break_torch(BROKEN[LIBRARY])
    assert losscli("--help").returncode == EXIT_OK
    done = losscli("doctor", "--device", "cpu", "--json")
    record = json.loads(done.stdout)
    found = {finding["name"]: finding for finding in record["results"]}
    assert found["torch"]["state"] == "problem"
    assert found["torch"]["found"] == f"cannot be imported: {LIBRARY}"
    assert [f for f in record["results"] if "the probe failed" in f["found"]] == []


@pytest.mark.parametrize("told", [LIBRARY, pytest.param(MISSING, marks=SLOW)])
def test_other_commands_name_the_doctor_if_torch_is_broken(break_torch, told):
    break_torch(BROKEN[told].removeprefix("print('hello'); "))
    done = losscli("verify", "--quick")
    message = f"torch cannot be imported: {told}. `losscli doctor` says more."
    assert (done.returncode, done.stderr) == (EXIT_UNFIT, f"losscli: error: {message}\n")


@pytest.fixture
def answers(monkeypatch):
    """Return a function that makes the probes give these answers."""

    def tell(answer, machine):
        return answer

    def give(*given):
        table = [Probe("area", f"fact {n}", partial(tell, each)) for n, each in enumerate(given)]
        monkeypatch.setattr(probes, "PROBES", tuple(table))
        monkeypatch.setattr(Machine, "device", "cpu")

    return give


FINE, DOUBT = ok("well"), warning("so so", "Mend it.")
BAD = problem("bad " * 40, "Buy another. " * 12)


@pytest.mark.parametrize(
    ("given", "code", "summary"),
    [
        ((FINE,), EXIT_OK, "doctor: cpu can be used; 1 ok, 0 warnings"),
        ((FINE, DOUBT, BAD), EXIT_UNFIT, "doctor: cpu cannot be used; 1 ok, 1 warning, 1 problem"),
    ],
    ids=["ok", "problem"],
)
def test_only_a_problem_exits_4(answers, capsys, given, code, summary):
    answers(*given)
    assert run(["doctor"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == summary
    assert max(map(len, lines)) <= WIDTH


def test_report_and_record_as_a_whole(answers, capsys, golden):
    answers(FINE, DOUBT)
    assert run(["doctor", "--device", "cpu"]) == EXIT_OK
    golden("doctor_report.txt", capsys.readouterr().out)
    assert run(["doctor", "--json"]) == EXIT_OK
    record = json.loads(capsys.readouterr().out)
    del record["command"], record["created"]
    golden("doctor.json", json.dumps(record, indent=1) + "\n")


def test_unknown_device_is_wrong_usage(capsys):
    assert run(["doctor", "--device", "gpu"]) == EXIT_USAGE
    assert "unknown device 'gpu'" in capsys.readouterr().err
