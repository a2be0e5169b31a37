"""`losscli profile`: what bounds one call of a loss."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from losscli.cli import options
from losscli.cli.ranks import load
from losscli.cli.variables import option, switch
from losscli.console.notes import note
from losscli.console.streams import emit, tell
from losscli.errors import EXIT_FAILED, EXIT_OK, EXIT_UNFIT, UsageError

if TYPE_CHECKING:
    from losscli.bench.plan import Task


@click.command("profile")
@click.argument("words", nargs=-1, metavar="[CASE]...")
@options.choosing_options
@switch("--dry-run", help="Print the command that runs under the profiler; run nothing.")
@switch(
    "--bare",
    "bare",
    help="Only make the calls, for a profiler that you start yourself; the last is marked by "
    "cudaProfilerStart and an NVTX range.",
)
@option("--trace", type=Path, hidden=True)
@options.format_option(("table", "md", "json"), "Write the report as table, md or json.")
@options.output_to("Write the profiler's own report to PATH.")
@options.examples(
    "losscli profile --loss smooth_l1 --size 8Kx8K --dtype bfloat16",
    "losscli profile -c rows multi_margin 8192x32000 bfloat16",
    "losscli profile --loss huber --size 8Kx8K --impl my_kernel.py -o huber.ncu-rep",
    "nsys profile -c cudaProfilerApi losscli profile --loss mse --size 8Kx8K --bare",
    after="Exit codes: 1 the implementation is wrong, 4 the case cannot run on this machine.",
)
def command(
    *,
    words: tuple[str, ...],
    bare: bool,
    trace: Path | None,
    dry_run: bool,
    list_cases: bool,
    format: str,
    output: Path | None,
    **axes: Any,
) -> int:
    """Find what limits the speed of one call of a loss, with a profiler.

    The answer is launches, uncoalesced access, memory, too few warps, instructions or latency; of a
    fused linear loss also matrix products, on a CPU memory or operators. Nsight Compute (ncu) reads
    the counters of a GPU; without it, and on a CPU, PyTorch's profiler reads none, and the answer
    may be unknown. -o keeps the profiler's own report. CASE is the name of a case as --list prints
    it, or words of the name. Your own file runs without a sandbox.
    """
    axes["implementations"] = axes["implementations"] or ("custom",)
    axes["passes"] = axes["passes"] or ("forward_backward",)
    config = options.resolve_config(**axes)
    if not (list_cases or dry_run or bare):
        options.hold(output)

    device = load(config, None, list_cases=list_cases, dry_run=False)
    from losscli.bench.plan import able, libraries_of, plan
    from losscli.bench.runner import Runner
    from losscli.machine import memory
    from losscli.operators import loading
    from losscli.profile import session
    from losscli.render.records import write
    from losscli.runs.encoding import json_line
    from losscli.runs.files import write_file
    from losscli.runs.journal import kept
    from losscli.runs.records import FAILED

    task = _only(plan(config, device), words)
    # The same command, which only makes the calls.
    command = (sys.executable, "-m", "losscli", *sys.argv[1:], "--bare")
    if dry_run:
        emit(shlex.join(command))
        return EXIT_OK
    loading.build_ahead(libraries_of(able([task], memory.most_bytes(device)), device))
    if bare:
        from losscli.implementations import find_implementation
        from losscli.profile.bare import run

        ((pass_, (name,)),) = task.passes.items()
        run(task.case, pass_, find_implementation(name), trace)
        return EXIT_OK
    (result,) = Runner(device, notify=note).run(task)
    if result.seconds is None:
        tell(f"losscli: {result.implementation}: {result.reason}")
        return EXIT_FAILED if result.status == FAILED else EXIT_UNFIT
    found, raw = session.profile(result, command, lambda told: note(f"running {told}"))
    if output:
        write_file(output, raw)
    with kept("profile", lambda: json_line(found.to_json())):
        write(found, format, None)
    return EXIT_OK


def _only(tasks: list["Task"], words: tuple[str, ...]) -> "Task":
    asked = [word for each in words for word in each.split()]
    if not (found := [task for task in tasks if {*asked} <= {*task.case.name.split()}]):
        named = f"has {' '.join(asked)!r} in its name" if asked else "is left"
        raise UsageError(f"no case {named}. `losscli profile --list` lists the cases.")
    calls = [
        (task.case.name, pass_, name, f"table={task.table}")
        for task in found
        for pass_, names in task.passes.items()
        for name in names
    ]
    if len(calls) > 1:
        from losscli.views.phrases import listed

        tables = len({table for *_, table in calls}) > 1
        rows = [", ".join(call if tables else call[:-1]) for call in calls]
        advice = "Name it by --loss, --size, --dtype, --pass and --impl, or by words of its name"
        told = f"{advice}, or its table by --filter 'table=...'" if tables else advice
        heading = f"{len(rows)} calls are meant; profile takes one. {told}:"
        raise UsageError("\n".join(listed(heading, rows)))
    return found[0]
