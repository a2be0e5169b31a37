"""The records of a run, in SI units: seconds, bytes, GB/s of 1e9 bytes a second."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, TypeVar

from losscli.cases.axes import COLD, DEVICE, Cache, Mode, PassName
from losscli.cases.case import Case
from losscli.files.record import Record
from losscli.reasons import Code
from losscli.runs.judgements import CALL_SECONDS, IMPOSSIBLE_SHARE, is_busy
from losscli.runs.measurements import Collective, Error, OfRank, Ratio, Seconds, Speedup

SCHEMA_VERSION = 2

BenchStatus = Literal["ok", "skipped", "failed"]
VerifyStatus = Literal["pass", "warn", "fail", "skipped"]
TestStatus = Literal["pass", "fail"]
OK: Final = "ok"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
PASS: Final = "pass"
WARN: Final = "warn"
FAIL: Final = "fail"
Stop = Literal[
    "confidence", "time limit", "sample limit", "budget", "throttled", "nothing left to sample"
]
HOST_GAPS = "host_gaps"
"""In a result's conditions: batches in which the GPU waited for the host."""


class BenchResult(Record, frozen=True):
    """One implementation, one pass, one case."""

    case: Case
    implementation: str
    pass_: PassName
    status: BenchStatus
    reason: str = ""
    code: Code = Code.NONE
    stop: Stop | None = None
    discarded: int = 0
    """Samples that were discarded because the machine was throttled."""
    waits: bool = False
    """Whether each call waits for the GPU, so that its time includes the host's."""
    no_limit: str = ""
    limit_repeated: bool = False
    """Whether the limit was measured twice, and the faster one counts."""
    seconds: Seconds | None = None
    host_seconds: float | None = None
    """Median time that a call occupies the host while the GPU is idle; None if that was timed."""
    gbps: float | None = None
    limit_gbps: float | None = None
    """The same for a copy kernel, or for the bare matrix products, in the same run and size."""
    default_allocator_seconds: float | None = None
    """Median with glibc's default allocator; None if the other processes had no other."""
    speedup: Mapping[str, Ratio] = {}
    """Each other's time over this one's, the median over rounds: above 1 this one is faster."""
    ratios: Mapping[str, Speedup] = {}
    """The same with interval and verdict."""
    planned_extra_bytes: int | None = None
    peak_extra_bytes: int | None = None
    """Peak temporary memory of a call, without inputs, loss and gradients."""
    joules: float | None = None
    """Energy of a call, from many in succession; None if not requested or not readable."""
    watts: float | None = None
    """The same over the time of these calls."""
    no_energy: str = ""
    error: Error = Error()
    table: str = ""
    mode: Mode = DEVICE
    cache: Cache = COLD
    conditions: Mapping[str, Any] = {}
    """Flat conditions of the machine while sampling; empty if nothing was sampled."""
    ranks: tuple[OfRank, ...] = ()
    """Each rank's measurements, for a case with split operands."""
    collective: Collective | None = None

    derived: ClassVar[Mapping[str, str]] = {"host_seconds": "bytes", "limit_gbps": "impossible"}

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, without the fields of ranks for ordinary cases."""
        record = super().to_json()
        if not self.case.placement:
            del record["ranks"], record["collective"]
        return record

    @property
    def bytes(self) -> int:
        """The minimum memory traffic, from the byte model."""
        return self.case.floor_bytes(self.pass_)

    @property
    def operations(self) -> int:
        """The operations that limit the pass; 0 if memory does."""
        return self.case.operations(self.pass_)

    @property
    def teraflops(self) -> float | None:
        """The operations over the median, in 1e12 per second."""
        work = self.operations
        return work / self.seconds.median / 1e12 if work and self.seconds else None

    @property
    def limit_share(self) -> float | None:
        """The fraction of peak bandwidth: minimum time over the median."""
        return self.gbps / self.limit_gbps if self.gbps and self.limit_gbps else None

    @property
    def busy(self) -> bool:
        """Whether other programs used enough of the machine to report."""
        return is_busy(self.conditions)

    @property
    def impossible(self) -> bool:
        """Whether this is faster than the hardware allows, and no other program disturbed it."""
        share = self.limit_share
        if self.seconds is None or share is None or share <= IMPOSSIBLE_SHARE or self.busy:
            return False
        return (share - 1) * self.seconds.median > CALL_SECONDS


class VerifyResult(Record, frozen=True):
    """One check of one implementation on one case."""

    case: Case
    implementation: str
    check: str
    status: VerifyStatus
    reason: str = ""
    code: Code = Code.NONE
    error: Error = Error()
    reference_error: Error = Error()
    """PyTorch's own error on the same inputs."""
    tolerance: str = ""
    """The tolerance that the config or the loss loosened, with the loss's reason."""
    tolerance_ulp: float | None = None
    terms: str = ""
    """The loss's reason to measure errors in ulp of the largest term, if it has one."""
    shrunk_from: str = ""
    """The config's case whose failure this shows on a smaller one."""
    interleaved: tuple[str, ...] = ()
    """Other losses that a failed check called in between."""

    @property
    def told(self) -> str:
        """The reason as people read it."""
        excuse = "same error as PyTorch: " if self.code == Code.SAME_ERROR_AS_PYTORCH else ""
        return excuse + self.reason


class SelfTestResult(Record, frozen=True):
    """The self-test's outcome for one implementation and loss."""

    case: Case
    """The case that failed, or the first case."""
    implementation: str
    legitimate: bool
    failed: bool
    check: str = ""
    """The first check that failed it."""
    reason: str = ""

    derived: ClassVar[Mapping[str, str]] = {"check": "status"}

    @property
    def surprising(self) -> bool:
        """Whether a wrong implementation passed or a right one failed."""
        return self.failed == self.legitimate

    @property
    def status(self) -> TestStatus:
        """``fail`` if verification itself is wrong."""
        return FAIL if self.surprising else PASS


KNOWN_TIME, OVERHEAD = "known time", "overhead"
"""Parts of the timer's self-test; the others are named after a verdict."""


class TimerTestResult(Record, frozen=True):
    """The outcome of one part of the timer's self-test."""

    test: str
    """``known time``, ``overhead``, or the verdict that comparisons should get."""
    subject: str
    status: TestStatus
    reason: str = ""
    seconds: float | None = None
    expected_seconds: float | None = None
    right: int | None = None
    """Comparisons with that verdict."""
    runs: int | None = None


Result = BenchResult | VerifyResult | SelfTestResult | TimerTestResult
AnyResult = TypeVar("AnyResult", bound=Result)
Kind = Literal["bench", "verify", "self-test", "timer-test"]
"""The kind of run: verify's self-test, and bench's timer-test."""
RESULTS: Mapping[Kind, type[Result]] = {
    "bench": BenchResult,
    "verify": VerifyResult,
    "self-test": SelfTestResult,
    "timer-test": TimerTestResult,
}


class Exclusion(Record, frozen=True):
    """A rule of the config's ``exclude`` that removed rows."""

    rule: str
    """The rule as a config has it: ``{device: cpu, implementation: compile}``."""
    rows: int
    """Excluded cases, passes and implementations."""
    reason: str = ""

    def __str__(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        why = f": {self.reason}" if self.reason else ""
        return f"excluded {rows} by the config's rule {self.rule}{why}"


class SlowerConfiguration(Record, frozen=True):
    """A configuration in which losscli's kernel is slower than a baseline, beyond noise."""

    case: str
    pass_: PassName
    mode: Mode
    table: str
    baseline: str
    """The one against which the kernel is worst."""
    ratio: float
    """The baseline's time over the kernel's, below 1."""


class Headline(Record, frozen=True):
    """The summary of a bench run: where losscli's kernel is slower."""

    configurations: int
    """Cases and passes in which both the kernel and a baseline were timed."""
    slower: tuple[SlowerConfiguration, ...] = ()
    too_short: int = 0
    """Configurations in which the kernel was slower in too few rounds for a test."""
    untimed: int = 0
    """Configurations in which a baseline was timed but not the kernel."""


class Header(Record, frozen=True, kw_only=True):
    """What a run records before its results."""

    schema_version: int = SCHEMA_VERSION
    kind: Kind
    command: tuple[str, ...] = ()
    created: str = ""
    """ISO 8601, UTC."""
    environment: Mapping[str, Any] = {}
    plan: str = ""
    """A digest of the tasks of all shards, which a resumed run must match."""
    parts: tuple[str, ...] = ()
    """The run's shards, such as ``3/16``; empty if it has all cases."""
    unfinished: bool = False
    """Whether it was interrupted or stopped at a failure, or is a checkpoint."""
    result_count: int = 0
    """The number of results, to detect lost ones."""
    excluded: tuple[Exclusion, ...] = ()
    headline: Headline | None = None
    """The headline of a finished bench with baselines."""


class Run(Header, frozen=True, kw_only=True):
    """Everything a command measured."""

    results: tuple[Result, ...] = ()
    cut_off: bool = False
    """Whether the file's last line is incomplete; not part of the record."""

    def of(self, kind: type[AnyResult]) -> list[AnyResult]:
        """Return the results of a kind."""
        return [result for result in self.results if isinstance(result, kind)]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON record."""
        record = super().to_json()
        del record["cut_off"]
        return record
