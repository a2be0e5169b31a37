"""What a worker answers is taken as an answer only if it can be one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from losscli.implementations.call_data import Answer, Call, Curvature, Head, Replay
from losscli.implementations.remote import RemoteSubject
from losscli.implementations.sandbox.builds import MOST_BYTES
from losscli.implementations.sandbox.methods import (
    METHODS,
    Flip,
    Samples,
)
from losscli.implementations.sandbox.server import WATCHED_SECONDS, goes_on_computing
from losscli.implementations.sandbox.wire import Incoming, Outgoing
from losscli.implementations.subject import Subject
from tests.parameters import naming

ONE = torch.ones(())
PAIR = {"input": ONE, "target": ONE}
CALL = Call(PAIR, ("input", "target"), ONE)
CURVATURE = Curvature(PAIR, ONE, PAIR)
WHOLE: Any = {"input": ONE, "target": None}
SHORT_OF: Any = {"input": ONE}
ANSWER, SHORT = Answer(ONE, WHOLE), Answer(ONE, SHORT_OF)


def samples(*seconds: float, loss: torch.Tensor | None = ONE) -> Samples:
    return Samples(list(seconds), loss, [], 1.0)


BYTES = torch.zeros(1, dtype=torch.uint8)
FLIPS = [Flip(0, 1)] * 2
HEAD = Head(None, CALL, 1.0)
ANSWERS = [
    ("answer", (CALL,), ANSWER, True),
    ("answer", (CALL,), SHORT, False),
    ("answer", (Call(PAIR),), SHORT, False),
    ("poisoned", (CALL, 255), SHORT, False),
    ("changed", (CALL, "input", ONE), SHORT, False),
    ("retained", (CALL, [ONE, ONE]), [ANSWER, ANSWER], True),
    ("retained", (CALL, [ONE, ONE]), [ANSWER], False),
    ("retained", (CALL, [ONE, ONE]), [ANSWER, SHORT], False),
    ("graphed", (CALL, [ONE]), [ANSWER], True),
    ("graphed", (CALL, [ONE]), [SHORT], False),
    ("graphed", (CALL, [ONE]), [], False),
    ("on_streams", ([[CALL], []],), [[ANSWER], []], True),
    ("on_streams", ([[CALL], []],), [[ANSWER]], False),
    ("on_streams", ([[CALL]],), [[]], False),
    ("on_streams", ([[Replay(0, CALL)]],), [[SHORT]], False),
    ("on_streams", ([[CALL]],), [[SHORT]], False),
    ("accumulated", (CALL, {}, 3), WHOLE, True),
    ("accumulated", (CALL, {}, 3), {"target": ONE}, False),
    ("joint_gradients", ([HEAD, HEAD],), [WHOLE, WHOLE], True),
    ("joint_gradients", ([HEAD, HEAD],), [WHOLE], False),
    ("joint_gradients", ([HEAD],), [{}], False),
    ("second_derivatives", (CURVATURE,), WHOLE | {"incoming gradient": ONE}, True),
    ("second_derivatives", (CURVATURE,), WHOLE, False),
    ("record", ([CALL, CALL],), [0, 1], True),
    ("record", ([CALL, CALL],), [0], False),
    ("timed", (None,), samples(), True),
    ("timed", (None,), samples(loss=None), False),
    ("samples", (FLIPS, 1), samples(1e-6, 2e-6), True),
    ("samples", (FLIPS, -1), samples(1e-6, 2e-6, loss=None), True),
    ("samples", (FLIPS, 1), samples(1e-6, 2e-6, loss=None), False),
    ("samples", (FLIPS, 1), samples(1e-6), False),
    ("samples", (FLIPS, 1), samples(1e-6, 0.0), False),
    ("samples", (FLIPS, 1), samples(1e-6, float("inf")), False),
    ("compiled", (), BYTES, True),
    ("compiled", (), BYTES[None], False),
    ("compiled", (), BYTES.expand(MOST_BYTES + 2**21), False),
]


def test_an_answer_that_lacks_something_is_none():
    for number, (method, arguments, answer, fits) in enumerate(ANSWERS):
        with naming(number, method):
            assert METHODS[method].fits(answer, *arguments) is fits


def test_a_remote_subject_has_each_method_of_a_subject():
    methods = {name for name in vars(Subject) if not name.startswith("_")}
    own = {*vars(RemoteSubject), *RemoteSubject.__dataclass_fields__}
    assert methods <= {*METHODS} | own


def test_thread_that_soon_ends_its_work_is_not_left_behind():
    over = time.monotonic() + 3 * WATCHED_SECONDS

    def compute() -> None:
        while time.monotonic() < over:
            pass

    thread = threading.Thread(target=compute)
    thread.start()
    assert not goes_on_computing()
    assert time.monotonic() > over
    thread.join()


def test_zeros_that_autograd_does_not_store_are_an_answer():
    with memory() as operands, memory() as results:
        raw = Incoming(operands, results).encode(torch._efficientzerotensor((2, 3)))

        found = Outgoing(operands, results, "cpu").decode(raw, torch.Tensor)

    assert torch.equal(found, torch.zeros(2, 3))


@contextmanager
def memory() -> Iterator[int]:
    file = os.memfd_create("bytes")
    yield file
    os.close(file)
