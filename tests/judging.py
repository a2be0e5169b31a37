"""Verdicts made by hand, files to judge, and a judge that only reads what a file says of itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from losscli.errors import UnfitError, UsageError
from losscli.judge import farm, pool
from losscli.judge.job import Job
from losscli.judge.verdict import Verdict
from losscli.judge.verdict_parts import Accuracy, JudgeReason, Speed
from losscli.reasons import Code

ROOT = Path(__file__).parents[1]
CASE = "smooth_l1 1024x1024 float32 mean"
FORWARD = Speed(
    CASE,
    "forward",
    1.2e-3,
    {"reference": (1.8, 1.75, 1.85), "compile": (0.9, 0.88, 0.92)},
    limit_share=0.62,
    peak_extra_bytes=2**22,
)
BACKWARD = Speed(CASE, "forward_backward", 3.1e-3, {"reference": (2.4, 2.35, 2.45)}, 0.95, 0)
REPEAT = 'from losscli.verify import repeat; repeat("k.py", "layouts", "smooth_l1", (3, 5), seed=7)'
LAYOUTS = JudgeReason(
    Code.WRONG,
    "checks",
    "expected 0.25, got 0.5 at [0, 1]",
    check="layouts",
    case="smooth_l1 3x5 float32 mean transposed",
    repeat=REPEAT,
)


def verdict(word: Any = "RIGHT", file: str = "kernels/k.py", **changes: Any) -> Verdict:
    fields: dict[str, Any] = {
        "id": file,
        "against": "smooth_l1",
        "device": "cpu",
        "dtypes": ("float32", "float16"),
        "checks": {"pass": 54, "skipped": 3},
        "accuracy": Accuracy(0.5, 0.75, 1.25, 1.0, deterministic=True),
        "trains": True,
        "isolation": ("session", "network"),
        "losscli": "0.1.0",
    }
    return Verdict(file=file, word=word, **(fields | changes))


RIGHT = verdict(speed=(FORWARD, BACKWARD))
WRONG = verdict("WRONG", reasons=(LAYOUTS,), checks={"pass": 50, "fail": 4})


def write(folder: Path, name: str, says: str = "RIGHT") -> str:
    """Write a file that says what :func:`judge` is to find, and return its name."""
    path = folder / name
    path.write_text(f"# {says}\n\ndef smooth_l1_loss(input, target): ...\n")
    return str(path)


def judge(job: Job, *, notify: Any = None) -> Verdict:
    """Return the verdict that the file's first line names, or do as it says."""
    says = Path(job.file).read_text().partition("\n")[0].removeprefix("# ")
    if log := os.environ.get("FAKE_JUDGE_LOG"):
        with open(log, "a") as file:
            file.write(f"{job.id} {os.getpid()}\n")
    if says == "kills_worker" or (says == "kills_worker_once" and _first_time(job)):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if says == "segfault":
        os.kill(os.getpid(), 11)
    if says == "exit":
        os._exit(0)
    if says == "print":
        print("printed", flush=True)
        os.write(1, b"written\n")
    if says == "slow" or (says == "slow_once" and _first_time(job)):
        time.sleep(60)
    if says == "raise":
        raise ValueError("a fault of the judge")
    if says == "usage":
        raise UsageError("it makes no sense.")
    if says == "unfit":
        raise UnfitError("there is no memory.")
    if says == "quarantine":
        reasons = (JudgeReason(Code.DEVICE_UNHEALTHY, "checks", "no answer"),)
        return verdict("CRASHED", job.file, id=job.id, device=job.device, reasons=reasons)
    if says == "notes":
        notify("told")
    if says == "open":
        return verdict("RIGHT", job.file, id=job.id, not_isolated=("processes", "/proc"))
    if says == "policy":
        notify(os.environ.get("OMP_WAIT_POLICY", "its own"))
    word = says if says.isupper() else "RIGHT"
    limits = [JudgeReason(Code.KNOWN_LIMITATION, "checks", "NaN in the input")]
    why = tuple(limits if word == "RIGHT WITHIN LIMITS" else [])
    return verdict(word, job.file, id=job.id, device=job.device, reasons=why)


def _first_time(job: Job) -> bool:
    """Tell whether this job comes here for the first time."""
    lines = Path(os.environ["FAKE_JUDGE_LOG"]).read_text().splitlines()
    return [line.rpartition(" ")[0] for line in lines].count(job.id) == 1


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def wait_for(what: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def judge_here(monkeypatch: Any) -> None:
    """Have a pool judge in its threads, where it is not the processes that are tested."""
    monkeypatch.setattr(
        pool.JudgeProcess, "ask", lambda _, job, *given: pool._judge_safely(job, judge)
    )


COMMAND = (sys.executable, "-m", "tests.judging")
"""The command of a pool whose processes judge by :func:`judge`."""


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run losscli with this judge in another process."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **options,
    )


def main(arguments: list[str]) -> int:
    """Serve a pool; or run the command line with a pool or farm of such processes."""
    if not arguments:
        try:
            pool.serve(judge)
        except KeyboardInterrupt:
            return 130
        return 0
    from losscli.cli.main import run

    for kind in (pool.LocalPool, farm.Farm):
        defaults = kind.__init__.__kwdefaults__
        assert defaults
        defaults["command"] = COMMAND
    return run(arguments)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
