"""`losscli judge`: whether third-party loss kernels are right, and how fast."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from losscli.cases.axes import DTYPES
from losscli.cli import options
from losscli.cli.completion import OneOf
from losscli.cli.variables import option, switch
from losscli.config.fields import check_device
from losscli.config.sizes import parse_size
from losscli.console.notes import note, say
from losscli.console.streams import tell
from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, UsageError, worst
from losscli.losses import EVERY_LOSS, REDUCTIONS
from losscli.reasons import Code
from losscli.units import parse_memory, parse_seconds

if TYPE_CHECKING:
    from losscli.judge.pool import Item, JudgePool
    from losscli.judge.ray_cluster import Address

FORMATS = ("table", "json", "jsonl")
_RAY = "ray"
NOT_ISOLATED = "this machine cannot isolate files completely: see `losscli doctor --isolation`"
_LIMITS = ("build_seconds", "call_seconds", "total_seconds", "memory_bytes")


def _seconds(text: str) -> float:
    if seconds := parse_seconds(text):
        return seconds
    raise UsageError(f"'{text}' is not a time limit. Write 30s or 10m.")


_limit = partial(option, type=_seconds, metavar="TIME")


def _memory(text: str) -> int:
    if memory := int(parse_memory(text)):
        return memory
    raise UsageError(f"'{text}' is no memory. Write 512MB or 4GiB.")


def _engine(text: str) -> Address | str:
    if text == _RAY:
        return text
    if not text.startswith("ray://"):
        raise UsageError(f"unknown engine '{text}'. Write ray or ray://HOST:PORT.")
    from losscli.judge.ray_cluster import client_address

    return client_address(text.removeprefix("ray://"))


def _parameter(text: str) -> tuple[tuple[str, float]]:
    name, _, value = (part.strip() for part in text.partition("="))
    try:
        return ((name, float(value)),)
    except ValueError:
        raise UsageError(f"'{text}' is not a parameter. Write NAME=VALUE, e.g. beta=0.5.") from None


@click.command("judge")
@click.argument("files", nargs=-1, metavar="FILE...")
@options.named_option("--loss", EVERY_LOSS, "Judge against this loss of `losscli list losses`.")
@option("--reference", metavar="FILE", help="Judge against the Model in FILE, in float64.")
@option(
    "--call", metavar="EXPRESSION", help="Call it by this expression: 'fused(input, target)[0]'."
)
@option(
    "--arguments", metavar="NAMES", help="Order of the operands, as target,input; else by name."
)
@option(
    "--device",
    type=check_device,
    metavar="NAME",
    help="Device: auto, cpu, cuda (all GPUs) or cuda:N.",
)
@options.axis("--size", "sizes", "SIZE", parse_size, "Time at size SIZE: 1024x1024 or 32K.")
@options.named_axis("--dtype", "dtypes", "dtype", DTYPES)
@options.named_option(
    *("--reduction", REDUCTIONS),
    f"Reduction: {', '.join(REDUCTIONS)}; by default all that it takes.",
)
@options.axis(
    "--param", "parameters", "NAME=VALUE", _parameter, "Set a parameter of the loss: beta=0.5."
)
@switch("--quick", help="Run fewer checks and a short timing.")
@switch("--no-time", help="Time nothing.")
@switch("--require-isolation", help="Judge nothing if a part of the isolation is missing.")
@option(
    "--own-kernel",
    type=OneOf("choice", ("require",)),
    metavar="require",
    help="Fail a file if PyTorch's own kernels do its work: NO KERNEL OF ITS OWN.",
)
@switch("--until-first", help="Stop judging a file at the first mistake.")
@_limit("--build-timeout", "build_seconds", help="Stop the import and build after TIME.")
@_limit("--call-timeout", "call_seconds", help="Stop a file if a few calls take longer than TIME.")
@_limit("--timeout", "total_seconds", help="Stop judging a file after TIME.")
@option(
    *("--memory", "memory_bytes"),
    type=_memory,
    metavar="BYTES",
    help="Stop a file that uses more memory: 4GB, 4GiB.",
)
@option("--jobs", metavar="FILE", help="Read jobs from FILE, a JSON object a line; - is stdin.")
@option(
    "--resume",
    metavar="FILE",
    help="Judge only the jobs that have no verdict in FILE or are NOT JUDGED; append to FILE.",
)
@options.number_option(
    "--workers", "Build and check N files at once, by default as many as cores and memory allow."
)
@option(
    "--on", type=_engine, metavar="ENGINE", help="Judge on a Ray cluster: ray or ray://HOST:PORT."
)
@switch("--no-cache", help="Judge again what was judged before.")
@switch("--strict", help="Exit with 1 for RIGHT WITHIN LIMITS too.")
@options.named_option("--format", FORMATS, "Write table, json or jsonl, the default with --jobs.")
@options.output_option
@options.examples(
    "losscli judge my_kernel.py",
    "losscli judge my_kernel.py --loss huber --param delta=0.5 --quick",
    "losscli judge --jobs jobs.jsonl --workers 4 -o verdicts.jsonl",
    "losscli judge --jobs jobs.jsonl --on ray -o verdicts.jsonl",
)
def command(
    *,
    files: tuple[str, ...],
    jobs: str | None,
    resume: str | None,
    workers: int | None,
    on: Address | str | None,
    no_cache: bool,
    strict: bool,
    format: str | None,
    output: Path | None,
    **given: Any,
) -> int:
    """Judge loss kernels: whether they build, are right, and are fast.

    A FILE is FILE.py, FILE.cu, FILE.cpp, FILE.py:NAME, FILE.py@REVISION or PACKAGE.MODULE:NAME. It
    defines a function such as smooth_l1_loss(input, target, ...), or a class ModelNew; --call
    calls anything else. `losscli new` writes a file to start from.

    Exit codes: 1 a file is WRONG, CHEATS, CRASHED, HANGS or has NO KERNEL OF ITS OWN, 2 losscli
    cannot tell which loss a file computes, 3 a file DOES NOT BUILD and none is worse, 4 a file was
    NOT JUDGED and none is worse, 130 interrupted (the finished verdicts are written).
    """
    if bool(files) == bool(jobs):
        raise UsageError("name either files to judge or --jobs FILE.")
    if twice := next((file for file in files if files.count(file) > 1), ""):
        raise UsageError(f"'{twice}' is named twice. Name each file once.")
    if resume is not None:
        output, format = _resumed(resume, output, format), "jsonl"
    format = format or ("table" if jobs is None else "jsonl")
    fields = _fields(**given)
    options.hold(output)

    from losscli.cli.running import follow
    from losscli.judge.batch import judge_batch, read_finished, read_job
    from losscli.judge.verdict_cache import user_verdicts
    from losscli.report.verdict_block import line, summary
    from losscli.report.verdict_writer import VerdictWriter
    from losscli.views.phrases import count

    items = _jobs(jobs, fields) if jobs else [read_job({**fields, "file": each}) for each in files]
    read = read_finished(output) if resume and output else []
    earlier = [verdict for verdict in read if verdict.correct is not None]
    if finished := {verdict.id for verdict in earlier}:
        note(f"{output} already has {count(len(finished), 'verdict')}")
    # The nodes of a cluster have caches of their own machines.
    cache = user_verdicts() if on is None and not no_cache else None
    pool = _pool(on, workers, fields.get("device"), cached=not no_cache)
    batch = judge_batch(items, pool, cache=cache, finished=finished)
    doing = "judging builds, checks and times a file, which takes up to several minutes"
    interrupted = open_to_files = False
    with VerdictWriter(format, output, earlier=earlier, resumed=bool(resume)) as writer:
        try:
            for verdict in follow(batch, len(files), doing):
                writer.add(verdict)
                if verdict.not_isolated and not open_to_files:
                    open_to_files = True
                    note(f"{NOT_ISOLATED}; missing: {', '.join(verdict.not_isolated)}")
                if output or format == "json":
                    say(line(verdict))
        except KeyboardInterrupt:
            interrupted = True
    verdicts = writer.verdicts
    if output and verdicts:
        say(f"{summary(verdicts)}\n")
        note(f"wrote {output}")
    if interrupted:
        left = "; the finished verdicts are written" if verdicts else " before the first verdict"
        if verdicts and output and format == "jsonl":
            left = f"; judge the rest with --resume {output}"
        tell(f"losscli: interrupted{left}")
        return EXIT_INTERRUPTED
    if not verdicts:
        raise UsageError(f"--jobs {jobs} has no job. Write one JSON object per line.")
    if strict and any(Code.KNOWN_LIMITATION in each.codes for each in verdicts):
        return EXIT_FAILED
    return worst(each.exit_code for each in verdicts)


def _pool(
    engine: Address | str | None, workers: int | None, device: str | None, *, cached: bool
) -> JudgePool:
    if engine is None:
        from losscli.judge.pool import LocalPool, usable_gpus

        return LocalPool(workers, gpus=[] if device == "cpu" else usable_gpus(), notify=note)
    from losscli.judge.farm import Farm
    from losscli.judge.ray_cluster import RayCluster

    cluster = RayCluster(None if engine == _RAY else engine, workers=workers, notify=note)
    return Farm(cluster, workers=workers, cached=cached, notify=note)


def _fields(*, no_time: bool, **given: Any) -> dict[str, Any]:
    limits = {name: value for name in _LIMITS if (value := given.pop(name)) is not None}
    given |= {"parameters": dict(given["parameters"]), "limits": limits}
    if given["arguments"]:
        given["arguments"] = [name.strip() for name in given["arguments"].split(",")]
    fields = {name: value for name, value in given.items() if value}
    return {**fields, "timed": False} if no_time else fields


def _jobs(name: str, fields: Mapping[str, Any]) -> Iterable[Item]:
    """Return the jobs of a file or of standard input, read as needed."""
    from losscli.judge.batch import lines_of, read_jobs

    if name == "-":
        return read_jobs(lines_of(0), "stdin", fields)
    try:
        descriptor = os.open(name, os.O_RDONLY)
    except FileNotFoundError:
        raise UsageError(f"there is no file '{name}'. --jobs reads JSON lines.") from None
    except OSError as error:
        raise UsageError(f"--jobs '{name}' cannot be read: {error.strerror}.") from None
    if os.path.isdir(name):
        raise UsageError(f"--jobs '{name}' is a directory. Name a file.")
    return read_jobs(lines_of(descriptor), name, fields)


def _resumed(resume: str, output: Path | None, format: str | None) -> Path:
    if not resume:
        raise UsageError("--resume '' is an empty file name. Name the output to continue.")
    path = Path(resume)
    if output is not None and output != path:
        raise UsageError("--resume FILE adds to FILE and takes no other -o. Leave out -o.")
    if format not in (None, "jsonl"):
        raise UsageError(f"--resume continues an output in jsonl, not in {format}.")
    return options.writable("--resume", path)
