"""A clock that advances only when told, and a timer that reads it."""

from collections.abc import Callable, Sequence

from losscli.implementations.timer import Warm, sampling


class FakeClock:
    """Nanoseconds; ``spend`` makes calls that take a known time."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def seconds(self) -> float:
        return self.now * 1e-9

    def spend(self, *seconds: float) -> Callable[[], None]:
        """Return a call that takes these times in turn, then the last for ever."""
        durations = list(seconds)

        def call() -> None:
            self.now += round((durations.pop(0) if len(durations) > 1 else durations[0]) * 1e9)

        return call


class ClockTimer:
    """One call a sample, by a fake clock, in the order asked for, which it remembers."""

    gaps = 0

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.batches: list[list[str]] = []

    def warm_up(self, call: Callable[[], object]) -> Warm:
        call()
        return Warm(call, 1, 0.0)

    def measure(self, queue: Sequence[Warm]) -> list[float]:
        self.batches.append([warm.name for warm in queue])
        samples = []
        for warm in queue:
            start = self.clock.seconds()
            with sampling(warm):
                warm.call()
            samples.append(self.clock.seconds() - start)
        return samples
