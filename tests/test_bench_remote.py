"""The clock of the judge beside the samples that a candidate reports of itself."""

import pytest

from losscli.bench.remote import PATIENCE_SECONDS, disagreement
from losscli.reasons import Code

CLAIMED = 1e-3


class Machine:
    """Makes calls, each of which takes so long, and is kept from it by other programs."""

    def __init__(
        self,
        call_seconds: float,
        stolen: float = 0.0,
        every: float = 1.0,
        pace: float = 1.0,
        late: int = 0,
        honest: int = 0,
    ) -> None:
        """``stolen`` seconds are lost each time that ``every`` seconds have been computed.

        ``pace`` is that of the clock of its process, but for one in ``honest`` loops; ``late`` the
        number of loops whose response takes a tenth of a second.
        """
        self.pace, self.late, self.honest, self.loops = pace, late, honest, 0
        self.call_seconds, self.stolen, self.every = call_seconds, stolen, every
        self.now, self.calls, self._since = 0.0, 0, 0.0

    def looped(self, calls: int) -> float:
        self.calls += calls
        self._work(5e-5)  # a question and its answer
        start = self.now
        for _ in range(calls):
            self._work(self.call_seconds)
        self.loops += bool(calls)
        is_honest = self.honest and self.loops % self.honest == 0
        told = (self.now - start) * (1 if is_honest else self.pace)
        if calls and self.late:
            self.late -= 1
            self.now += 0.1
        return told

    def _work(self, seconds: float) -> None:
        self.now += seconds
        self._since += seconds
        while self._since >= self.every:
            self._since -= self.every
            self.now += self.stolen

    def disagreement(self, kind: str = "cpu", claimed: float = CLAIMED, host: float = 0.0):
        return disagreement(self.looped, kind, claimed, host, lambda: self.now)


def test_a_clock_that_says_what_the_samples_say_agrees_on_a_busy_machine_too():
    for kind, calls in (("cpu", 50), ("cuda", 3 * 50)):
        machine = Machine(CLAIMED)
        assert machine.disagreement(kind) is None
        assert machine.calls == pytest.approx(calls, abs=2)
    assert Machine(CLAIMED, stolen=0.07, every=0.011).disagreement() is None


def test_late_responses_of_a_busy_machine_are_not_taken_for_another_clock():
    for kind in ("cpu", "cuda"):
        machine = Machine(CLAIMED, late=15)
        assert machine.disagreement(kind) is None
        assert not machine.late
        assert Machine(CLAIMED, late=100).disagreement(kind).code == Code.TIMING_TAMPERING


def test_calls_that_take_longer_than_they_say_disagree_on_any_machine():
    for stolen in (0.0, 0.07):
        found = Machine(4 * CLAIMED, stolen, every=0.1).disagreement()
        assert found.code == Code.TIMING_TAMPERING
        assert "says 4000 us a call, its samples 1000 us" in found.text


def test_a_clock_that_goes_slowly_disagrees_though_loops_are_as_short_as_samples():
    for kind in ("cpu", "cuda"):
        for stolen in (0.0, 0.07):
            found = Machine(CLAIMED, stolen, every=0.1, pace=0.5).disagreement(kind)
            assert found.code == Code.TIMING_TAMPERING
            assert "its process's clock says" in found.text
        assert Machine(CLAIMED, pace=0.9).disagreement(kind) is None
        assert Machine(CLAIMED, pace=0.5, honest=10).disagreement(kind), "seldom honest"


def test_a_little_more_is_allowed():
    for call_seconds, kind, claimed, agrees in (
        (15e-6, "cpu", 3e-6, True),  # ten microseconds
        (25e-6, "cpu", 3e-6, False),
        (1.05 * CLAIMED, "cuda", CLAIMED, True),  # a tenth of runs of 20 ms
        (1.2 * CLAIMED, "cuda", CLAIMED, False),
        (1.05 * 3e-6, "cuda", 3e-6, True),
        (1.2 * 3e-6, "cuda", 3e-6, False),
    ):
        found = Machine(call_seconds).disagreement(kind, claimed)
        assert (found is None) == agrees, (call_seconds, kind, claimed)
    # The part of the host may vary more.
    assert Machine(1.4e-4).disagreement("cuda", 1e-5, host=1e-4) is None
    assert Machine(1.7e-4).disagreement("cuda", 1e-5, host=1e-4)


def test_calls_that_take_very_long_are_not_waited_for_a_hundred_times():
    machine = Machine(1000 * CLAIMED)
    assert machine.disagreement()
    assert machine.now < 300 * 1.1 + PATIENCE_SECONDS + 5
    machine = Machine(1.0)
    assert machine.disagreement("cuda", 1e-6)
    assert machine.now < 1.1 * (200 + PATIENCE_SECONDS + 3)
