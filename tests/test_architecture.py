"""docs/architecture.md: the way from `losscli bench` to a kernel, and the places that it names."""

import ast
import re
import socket
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import losscli.losses.operators
from losscli.bench import processes
from losscli.bench.limit import Limit
from losscli.bench.plan import plan
from losscli.bench.runner import Runner
from losscli.bench.worker import serve
from losscli.cli.main import run
from losscli.config.schema import Config, LossChoice, Timing
from losscli.processes import Channel
from tests.fake_bench import FixedLimits, Seen

ROOT = Path(losscli.__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"^\d+\. `(\S+)`: `(\S+)`$", PAGE, re.MULTILINE)
MOST = 13
READY = "from losscli.processes import to_parent\nwith to_parent() as c: c.put(None); c.receive()"


def steps_to(frame: FrameType | None, first: str) -> list[tuple[str, str]]:
    """Return the functions of losscli that are running, from the first down to a frame."""
    found = []
    while frame:
        path, name = Path(frame.f_code.co_filename), frame.f_code.co_qualname
        if path.is_relative_to(ROOT / "losscli"):
            found.append((path.relative_to(ROOT).as_posix(), name))
        if name == first:
            break
        frame = frame.f_back
    return found[::-1]


def test_the_way_has_few_steps():
    assert len(STEPS) <= MOST


def test_the_way_leads_from_the_command_to_a_message(monkeypatch):
    found: list[tuple[str, str]] = []

    def put(channel: Channel, value: object) -> None:
        found.extend([*steps_to(sys._getframe(1), "command"), STEPS[3]])
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-c", READY))
    monkeypatch.setattr(Channel, "put", put)
    options = ["--device", "cpu", "--loss", "mse", "--size", "8x8", "--processes", "2"]
    assert run(["bench", *options]) == 130
    assert found == STEPS[:4]


def test_the_way_leads_from_a_message_to_an_operator(monkeypatch):
    ways: list[list[tuple[str, str]]] = []

    def operator(input: Any, target: Any, *settings: object) -> Any:
        ways.append(steps_to(sys._getframe(1), "serve"))
        return ((input - target) ** 2).mean()

    monkeypatch.setitem(losscli.losses.operators.OPERATORS, "mse", operator)
    config = Config(
        losses=(LossChoice("mse"),),
        sizes=((8, 8),),
        passes=("forward_backward",),
        implementations=("custom",),
        timing=Timing(min_time=0.0, max_time=0.0),
    )
    fakes: Any = {"limits": FixedLimits(Limit()), "conditions": Seen()}
    ours, theirs = map(Channel, socket.socketpair())
    for task in plan(config, "cpu"):
        ours.put(task)
    ours.socket.shutdown(socket.SHUT_WR)
    with ours, theirs:
        serve(theirs, Runner("cpu", **fakes))
    assert STEPS[4:] in ways


@pytest.mark.parametrize("line", re.findall(r"^.*`losscli/.*$", PAGE, re.MULTILINE))
def test_places_are_there(line):
    for path, after in re.findall(r"`((?:losscli|csrc)/[\w/.]+)`(?::((?:,? `[\w.<>]+`)*))?", line):
        assert (ROOT / path).exists(), path
        for name in re.findall(r"`([\w.<>]+)`", after if (ROOT / path).is_file() else ""):
            assert re.search(rf"\b{name.split('.')[-1]}\b", (ROOT / path).read_text()), name


def test_a_class_name_stands_for_one_idea():
    """``Forward`` is a request and a timed pass, ``Part`` a shard, a section, and some classes."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "losscli").rglob("*.py")]
    classes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    names = Counter(node.name for node in classes)
    assert {name for name, count in names.items() if count > 1} == {"Forward", "Part", "Plan"}


def test_no_file_has_more_than_330_lines() -> None:
    lengths = {
        path: len(path.read_text().splitlines()) for path in (ROOT / "losscli").rglob("*.py")
    }
    assert {str(path): length for path, length in lengths.items() if length > 330} == {}
