"""What a worker answers is an answer only if it can be one; samples are of the named contents."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import torch

from losscli.cli import main
from losscli.errors import EXIT_FAILED
from losscli.implementations import IMPLEMENTATIONS
from losscli.implementations.errors import NotBuiltError
from losscli.implementations.gpu_requests import (
    BackwardReplays,
    MakeGraphedCallables,
    OnStreams,
    Replay,
)
from losscli.implementations.local import LocalSubject
from losscli.implementations.memory_requests import Poisoned
from losscli.implementations.requests import (
    Accumulate,
    Answer,
    Call,
    ChangedData,
    Head,
    InThread,
    JointGradients,
    Request,
    RetainGraph,
    SecondDerivatives,
    toggle,
)
from losscli.implementations.sandbox import scratch, wire
from losscli.implementations.sandbox.client import Worker
from losscli.implementations.sandbox.timed_requests import (
    Flip,
    Loop,
    Sample,
    Samples,
    Time,
    TimedPass,
    WarmUp,
)
from losscli.implementations.sandbox.worker_requests import (
    WATCHED_SECONDS,
    Compiled,
    TuningSeconds,
    goes_on_computing,
)
from losscli.implementations.source import Source
from losscli.implementations.timer import CpuTimer
from tests.handmade import case
from tests.parameters import naming

ONE = torch.ones(())
PAIR = {"input": ONE, "target": ONE}
CALL = Call(PAIR, ("input", "target"), ONE)
WHOLE: Any = {"input": ONE, "target": None}
SHORT_OF: Any = {"input": ONE}
ANSWER, SHORT = Answer(ONE, WHOLE), Answer(ONE, SHORT_OF)


def samples(*seconds: float, loss: torch.Tensor | None = ONE) -> Samples:
    return Samples(list(seconds), loss, [], 1.0)


BYTES = torch.zeros(1, dtype=torch.uint8)
FLIPS = [Flip(0, 1)] * 2
HEAD = Head(None, CALL, 1.0)
CALLS: Any = [CALL, CALL]
RESPONSES: list[tuple[Request[Any], Any, bool]] = [
    (CALL, ANSWER, True),
    (CALL, SHORT, False),
    (Call(PAIR), SHORT, False),
    (Poisoned(CALL, 255), SHORT, False),
    (ChangedData(CALL, "input", ONE), SHORT, False),
    (RetainGraph(CALL, [ONE, ONE]), [ANSWER, ANSWER], True),
    (RetainGraph(CALL, [ONE, ONE]), [ANSWER], False),
    (RetainGraph(CALL, [ONE, ONE]), [ANSWER, SHORT], False),
    (MakeGraphedCallables(CALL, [ONE]), [ANSWER], True),
    (MakeGraphedCallables(CALL, [ONE]), [SHORT], False),
    (BackwardReplays(CALL, [ONE]), [], False),
    (InThread(CALLS), [ANSWER, SHORT], False),
    (OnStreams([[CALL], []]), [[ANSWER], []], True),
    (OnStreams([[CALL], []]), [[ANSWER]], False),
    (OnStreams([[CALL]]), [[]], False),
    (OnStreams([[Replay(CALL, 0)]]), [[SHORT]], False),
    (OnStreams([[CALL]]), [[SHORT]], False),
    (Accumulate(CALL, {}, 3), WHOLE, True),
    (Accumulate(CALL, {}, 3), {"target": ONE}, False),
    (JointGradients([HEAD, HEAD]), [WHOLE, WHOLE], True),
    (JointGradients([HEAD, HEAD]), [WHOLE], False),
    (JointGradients([HEAD]), [{}], False),
    (SecondDerivatives(PAIR, ONE, PAIR), WHOLE | {"grad_output": ONE}, True),
    (SecondDerivatives(PAIR, ONE, PAIR), WHOLE, False),
    (Time("forward", PAIR, False, False), samples(), True),
    (Time("forward", PAIR, False, False), samples(loss=None), False),
    (Sample(FLIPS, 1), samples(1e-6, 2e-6), True),
    (Sample(FLIPS, -1), samples(1e-6, 2e-6, loss=None), True),
    (Sample(FLIPS, 1), samples(1e-6, 2e-6, loss=None), False),
    (Sample(FLIPS, 1), samples(1e-6), False),
    (Compiled(), BYTES, True),
    (Compiled(), BYTES[None], False),
    (Compiled(), BYTES.expand(scratch.MOST_BYTES + 2**21), False),
]


def test_a_response_that_lacks_something_is_not_accepted():
    for number, (request, response, accepted) in enumerate(RESPONSES):
        with naming(number, type(request).__name__):
            assert request.accepts(response) is accepted


@pytest.mark.parametrize("seconds", ["0.0", "-1e-6", "1e999", "null"])
def test_a_sample_takes_some_time(seconds):
    text = '{"seconds": [%s], "loss": null, "gradients": [], "incoming": 1.0}'
    assert msgspec.json.decode(text % "1e-6", type=Samples).seconds == [1e-6]
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text % seconds, type=Samples)


@pytest.mark.parametrize("request_type", [TuningSeconds, Loop])
def test_seconds_are_not_negative(request_type):
    assert msgspec.json.decode("0", type=request_type.response_type()) == 0
    for seconds in ("-1", "1e999", "null"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(seconds, type=request_type.response_type())


ANSWERS_FOR_ITSELF = """
import json
import sys

import losscli.errors


def answer(kind):
    frame = sys._getframe()
    while "connection" not in frame.f_locals:
        frame = frame.f_back
    number = frame.f_locals["state"].number
    message = dict(type="raised", kind=kind, number=number, text="not mine", broke=True)
    frame.f_locals["connection"].send(json.dumps(message).encode())
"""
ANSWERS_FOR_ITS_IMPORT = f"""{ANSWERS_FOR_ITSELF}

answer("KIND")


def mse_loss(input, target):
    return (input - target).mean()
"""
FAILS_IN_A_CALL = f"""{ANSWERS_FOR_ITSELF}

def mse_loss(input, target, *, reduction="mean"):
    FAILS
    return input.sum() + target.sum()
"""
OF_LOSSCLI = {
    'answer("error")': ("CHEATS", "wrote_to_channel", "channel: an error of losscli itself"),
    'raise losscli.errors.UnfitError("no GPU")': ("CRASHED", "raised", "raised UnfitError: no GPU"),
}
"""How a file claims an error of losscli's own, and its verdict, code and reason."""


@pytest.mark.parametrize("kind", ["raised", "error", "out_of_memory", "no_second_derivatives"])
def test_a_file_that_answers_for_its_own_import_is_not_built(tmp_path, kind):
    path = tmp_path / "kernel.py"
    path.write_text(ANSWERS_FOR_ITS_IMPORT.replace("KIND", kind))
    with pytest.raises(NotBuiltError, match="not mine"):
        Worker(Source.read(str(path)), "cpu")


@pytest.mark.parametrize("fails", OF_LOSSCLI)
def test_a_file_cannot_claim_an_error_of_losscli(judged, fails):
    word, code, text = OF_LOSSCLI[fails]
    verdict = judged(FAILS_IN_A_CALL.replace("FAILS", fails))
    assert (verdict.word, verdict.reasons[0].code) == (word, code)
    assert text in verdict.reasons[0].text


@pytest.mark.parametrize("fails", OF_LOSSCLI)
def test_a_claimed_error_of_losscli_does_not_end_a_run(tmp_path, capsys, fails):
    path = tmp_path / "kernel.py"
    path.write_text(FAILS_IN_A_CALL.replace("FAILS", fails))
    what = f"--loss mse --size 8x8 --dtype float32 --reduction mean --impl {path},reference"
    run = f"--device cpu {what} --check value,gradients --format json"
    assert main.run(["verify", *run.split()]) == EXIT_FAILED
    results = json.loads(capsys.readouterr().out)["results"]
    ended = {(r["implementation"] == str(path), r["check"], r["status"]) for r in results}
    assert ended >= {(True, "value", "fail"), (True, "gradients", "fail"), (False, "value", "pass")}
    assert all(OF_LOSSCLI[fails][2] in r["reason"] for r in results if r["status"] == "fail")


def test_thread_that_soon_ends_its_work_is_not_left_behind():
    over = time.monotonic() + 3 * WATCHED_SECONDS

    def compute():
        while time.monotonic() < over:
            pass

    thread = threading.Thread(target=compute)
    thread.start()
    assert not goes_on_computing()
    assert time.monotonic() > over
    thread.join()


def test_zeros_that_autograd_does_not_store_are_an_answer():
    with memory() as operands, memory() as results:
        raw = wire.WorkerEnd(operands, results).encode(torch._efficientzerotensor((2, 3)))
        found = wire.JudgeEnd(operands, results, "cpu").decode(raw, torch.Tensor)
    assert torch.equal(found, torch.zeros(2, 3))


def test_tensors_travel_in_pieces_and_only_what_a_call_changed_comes_back(monkeypatch):
    monkeypatch.setattr(wire, "_PIECE", 7)
    kept, changed = torch.rand(5, 3), torch.rand(4)
    before = kept.clone()
    with memory() as operands, memory() as results:
        judge, worker = wire.JudgeEnd(operands, results, "cpu"), wire.WorkerEnd(operands, results)
        raw, storages = judge.encode([kept, changed])
        worker.read(storages)
        first, second = worker.decode(raw, list[torch.Tensor])
        second.mul_(2)
        found = judge.decode(worker.encode(first.T), torch.Tensor)
        keys = worker.write_back()
        assert keys == [storages[1].key]
        judge.take_back(keys)
        with pytest.raises(KeyError):
            judge.take_back([9])
    assert torch.equal(found, before.T)
    assert torch.equal(kept, before)
    assert torch.equal(changed, second)


@contextmanager
def memory() -> Iterator[int]:
    file = os.memfd_create("bytes")
    yield file
    os.close(file)


SHAPE = (6, 4)
TIMED_FLIPS = [Flip(0, 2), Flip(1, 5), Flip(4, 6), Flip(1, 5)]


class Again(CpuTimer):
    """Takes each batch twice, as a timer on a GPU does whose wait was too short."""

    def measure(self, queue):
        samples = [super(Again, self).measure(queue) for _ in range(2)]
        return samples[-1]


@pytest.mark.parametrize("keep", range(len(TIMED_FLIPS)))
def test_a_batch_that_is_taken_again_leaves_the_contents_that_the_judge_expects(keep):
    small = case(shape=SHAPE, target_shape=SHAPE, device="cpu")
    input, target = torch.rand(SHAPE), torch.rand(SHAPE)
    expected = input.clone()
    timed = TimedPass(
        LocalSubject.bind(IMPLEMENTATIONS["reference"], small),
        Time("forward", {"input": input, "target": target}, evicts=False, captured=False),
    )
    timed.timer = Again()
    WarmUp().perform_on(timed)
    found = Sample(TIMED_FLIPS, keep).perform_on(timed)
    losses = []
    for flip in TIMED_FLIPS:
        toggle(expected[flip.start : flip.stop], small)
        losses.append(torch.nn.functional.mse_loss(expected, target))
    assert found.loss is not None
    assert torch.equal(found.loss, losses[keep])
    assert torch.equal(input, expected)
