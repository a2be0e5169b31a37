"""Stop rules and interleaving, by a fake clock."""

from unittest.mock import Mock

import pytest
from msgspec import structs

from losscli.bench.results import explain
from losscli.bench.sampling import MAXIMUM_ROUNDS, Contender, interleave
from losscli.bench.statistics import summarize
from losscli.config.schema import Timing
from losscli.errors import BuildError
from tests.fake_time import ClockTimer, FakeClock
from tests.handmade import result


class Race:
    """Contenders by name, each with the times its calls take."""

    def __init__(self, **seconds):
        self.clock = FakeClock()
        self.timer = ClockTimer(self.clock)
        self.contenders = {
            name: Contender(name, self.clock.spend(*times)) for name, times in seconds.items()
        }

    def run(self, seed=0, before=int, slowed=bool, **timing):
        contenders = list(self.contenders.values())
        for contender in contenders:
            contender.warm_up(self.timer)
        start = self.clock.seconds()
        stop = interleave(
            self.timer,
            contenders,
            Timing(**timing),
            seed=seed,
            before=before,
            slowed=slowed,
            clock=self.clock.seconds,
        )
        self.elapsed = self.clock.seconds() - start
        return stop

    @property
    def order(self):
        return [name for batch in self.timer.batches for name in batch]


def noise(low, high, count):
    return [low, high] * count


def test_sampling_stops_when_every_median_is_known_or_at_the_sample_limit():
    race = Race(a=[1e-3], b=[2e-3], c=[4e-3])
    assert race.run(min_time=0, max_time=10) == "confidence"
    for contender, seconds in zip(race.contenders.values(), (1e-3, 2e-3, 4e-3), strict=True):
        assert contender.samples == pytest.approx([seconds] * 13)  # 10 are asked for
    race = Race(noisy=noise(1e-6, 2e-6, 10**4))
    assert race.run(min_time=0, max_time=10) == "sample limit"
    assert len(race.contenders["noisy"].samples) == MAXIMUM_ROUNDS


def test_sampling_lasts_for_the_minimum_time_and_three_rounds():
    race = Race(a=[1e-3])
    assert race.run(min_time=0.5, max_time=10) == "confidence"
    assert 0.5 <= race.elapsed < 0.8
    race = Race(a=[60.0], b=[60.0])
    assert race.run(min_time=0.2, max_time=10) == "time limit"
    assert [len(c.samples) for c in race.contenders.values()] == [3, 3]


def test_one_noisy_implementation_keeps_all_sampled_until_soon_after_the_time_limit():
    race = Race(quiet=[1e-3], noisy=noise(1e-3, 2e-3, 10**4))
    assert race.run(min_time=0, max_time=0.5) == "time limit"
    quiet, noisy = race.contenders.values()
    assert len(quiet.samples) == len(noisy.samples) > 100
    assert 0.5 <= race.elapsed < 0.51


def test_probe_is_sampled_as_long_as_the_implementations_and_not_alone():
    race = Race(quiet=[1e-3], noisy=noise(1e-3, 2e-3, 10**4))
    race.contenders["noisy"].awaited = False
    assert race.run(min_time=0, max_time=0.5) == "confidence"
    assert [len(c.samples) for c in race.contenders.values()] == [13, 13]
    race.contenders["quiet"].awaited = False
    assert race.run(min_time=0, max_time=0.5) == "nothing left to sample"


def test_each_round_samples_each_implementation_once_in_an_order_of_the_seed():
    orders = []
    for seed in (1, 1, 2):
        race = Race(a=[1e-3], b=[1e-3], c=[1e-3])
        race.run(seed=seed, min_time=0.1, max_time=1)
        orders.append(race.order)
        rounds = [tuple(race.order[i : i + 3]) for i in range(0, len(race.order), 3)]
        assert all(sorted(names) == ["a", "b", "c"] for names in rounds)
        assert len(set(rounds)) == 6
    assert orders[0] == orders[1] != orders[2]


def test_failed_implementation_leaves_and_the_others_continue():
    race = Race(good=[1e-3], bad=[1e-3])
    calls = []

    def fail():
        calls.append(1)
        if len(calls) > 5:
            raise ValueError("the fifth sample was too much")

    race.contenders["bad"].call = fail
    assert race.run(min_time=0, max_time=10) == "confidence"
    assert str(race.contenders["bad"].failure) == "the fifth sample was too much"
    assert race.contenders["good"].failure is None
    assert len(race.contenders["good"].samples) >= 10
    assert set(race.timer.batches[-1]) == {"good"}


def test_sampling_ends_when_no_implementation_is_left():
    race = Race(bad=[1e-3])
    race.contenders["bad"].warm_up(race.timer)
    race.contenders["bad"].failure = ValueError()
    contenders = list(race.contenders.values())
    assert interleave(race.timer, contenders, Timing(), seed=0) == "nothing left to sample"


def test_error_of_the_run_fails_no_implementation():
    contender = Contender("custom", Mock(side_effect=BuildError("no kernels")))
    with pytest.raises(BuildError):
        contender.warm_up(ClockTimer(FakeClock()))
    assert contender.failure is None


def test_reason_says_how_well_the_median_is_known():
    def told(count, **fields):
        return explain(structs.replace(result(seconds=summarize([1.0] * count)), **fields))

    assert told(12, stop="confidence") == "confidence: 12 samples, median within 0.00%"
    assert told(3, stop="time limit") == "time limit: 3 samples, too few for an interval"
    due = "confidence: 12 samples, 4 discarded while throttled, median within 0.00%"
    assert told(12, stop="confidence", discarded=4) == due


def test_contents_of_the_operands_change_before_each_batch():
    race = Race(a=[1e-3], b=[1e-3])
    batches = []
    race.run(min_time=0, max_time=10, before=lambda: batches.append(len(race.timer.batches)))
    assert batches == list(range(len(race.timer.batches)))
    assert len(batches) >= 2


def throttled_until(race, seconds):
    """The machine cools down; a call takes twice as long until then."""
    return lambda: race.clock.seconds() < seconds


def test_throttled_samples_are_discarded_and_counted_for_twice_the_longest_time():
    race = Race(a=[2e-3] * 50 + [1e-3], b=[2e-3] * 50 + [1e-3])
    stop = race.run(min_time=0, max_time=10, slowed=throttled_until(race, 0.204))
    assert stop == "confidence"
    for contender in race.contenders.values():
        assert contender.samples == pytest.approx([1e-3] * len(contender.samples))
        assert contender.thrown_away == 50
        assert len(contender.samples) >= 10
    race = Race(a=[1e-2])
    assert race.run(min_time=0, max_time=1, slowed=lambda: True) == "throttled"
    (contender,) = race.contenders.values()
    assert contender.samples == []
    assert contender.thrown_away == 200
    assert race.elapsed == pytest.approx(2.0)


def test_rounds_stay_aligned_after_discarded_samples():
    race = Race(a=noise(1e-3, 3e-3, 200), b=noise(2e-3, 6e-3, 200))
    looks = iter([False, True] * 1000)
    race.run(min_time=0, max_time=0.5, slowed=lambda: next(looks))
    a, b = (contender.samples for contender in race.contenders.values())
    assert [y / x for x, y in zip(a, b, strict=True)] == pytest.approx([2.0] * len(a))
