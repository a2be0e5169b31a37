"""Profile a call: time it, run it under a profiler, decide what bounds it."""

import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from losscli.errors import UnfitError
from losscli.profile import nsight_compute, torch_profiler
from losscli.profile.bounds import decide
from losscli.profile.record import Launch, Profile
from losscli.runs.records import BenchResult

TRACE = "--trace"


def profile(
    result: BenchResult, bare: Sequence[str], notify: Callable[[str], None] = lambda note: None
) -> tuple[Profile, bytes]:
    """Profile what was timed; also return the profiler's report: ncu's, or a trace.

    ``bare`` is the command that only makes the calls; UnfitError if it fails under the profiler.
    """
    assert result.seconds is not None
    notes: list[str] = []
    launches: tuple[Launch, ...] = ()
    gap: float | None = None
    name, command = torch_profiler.NAME, tuple(bare)
    with TemporaryDirectory(prefix="losscli-") as folder:
        kept = Path(folder) / "report.ncu-rep"
        if result.case.device != "cpu":
            try:
                command = nsight_compute.command(kept.with_suffix(""), bare)
                notify(shlex.join(command))
                launches = nsight_compute.run(command, kept)
                name = nsight_compute.PROGRAM
            except nsight_compute.NoCountersError as error:
                notes.append(str(error))
        if name == torch_profiler.NAME:
            kept = Path(folder) / "trace.json"
            command = (*bare, TRACE, str(kept))
            notify(shlex.join(command))
            launches, gap = torch_profiler.read(_traced(command, kept))
        raw = kept.read_bytes()
    # Matrix products are not a memory limit.
    limit_gbps = None if result.operations else result.limit_gbps
    bound, why = decide(launches, result.seconds.median, result.limit_share, limit_gbps)
    found = Profile(
        case=result.case.name,
        implementation=result.implementation,
        pass_=result.pass_,
        device=result.case.device,
        profiler=name,
        command=command,
        seconds=result.seconds.median,
        peak_fraction=result.limit_share,
        limit_gbps=limit_gbps,
        launches=launches,
        gap_seconds=gap,
        bound=bound,
        why=why,
        notes=tuple(notes),
    )
    return found, raw


def _traced(command: Sequence[str], trace: Path) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode or not trace.exists():
        said = (ended.stderr or ended.stdout).strip().splitlines()
        raise UnfitError(f"the call failed under the profiler: {(said or ['no message'])[-1]}")
    return trace.read_text(encoding="utf-8")
