"""``losscli build``: compile the kernels for this machine."""

import time
from collections.abc import Sequence

import click

from losscli.build.targets import BENCH, Target, benchmarking, production
from losscli.cli.completion import DEVICES, OneOf
from losscli.cli.options import examples, loss_axis, named_option
from losscli.cli.variables import option, switch
from losscli.cli.verify import DEFAULT_CONFIG
from losscli.console.notes import note
from losscli.console.streams import emit, tell
from losscli.errors import UsageError
from losscli.implementations import libraries
from losscli.losses import LOSSES, ROW_LOSSES
from losscli.render.text import text
from losscli.runs.grouping import grouped
from losscli.units import format_bytes
from losscli.views.document import Sentence, Table

CONFIGS = {"bench": None, "verify": DEFAULT_CONFIG}


@click.command(name="build")
@named_option(
    *("--device", DEVICES, "Build for auto, cpu or cuda; auto includes CUDA if torch sees a GPU."),
    default="auto",
    show_default=True,
)
@loss_axis(
    "Build the kernels of loss NAME alone; all (elementwise), weighted, rows and linear are groups."
)
@option(
    "--for",
    "command_",
    type=OneOf("command", CONFIGS),
    metavar="COMMAND",
    help="Build what `losscli bench` or `losscli verify` needs without -c: COMMAND is "
    f"{' or '.join(CONFIGS)}. With --loss, what it needs for these losses.",
)
@switch(
    "--all", "everything", help="Also build libraries that only benchmarks use; not with --for."
)
@switch(
    "--headers",
    help="Also precompile PyTorch's header, so that C++ files are judged faster: needs GCC, 1.5 GB "
    "and a minute.",
)
@switch("--force", help="Rebuild libraries that are in the cache.")
@switch("--verbose", help="Show the commands, and the registers and memory of each CUDA kernel.")
@examples(
    "losscli build",
    "losscli build --for bench",
    "losscli build --loss mse,cross_entropy --device cpu",
    "losscli build --device cuda --all",
    "losscli build --force --verbose",
)
def command(
    device: str,
    losses: tuple[str, ...],
    command_: str | None,
    everything: bool,
    headers: bool,
    force: bool,
    verbose: bool,
) -> None:
    """Compile the kernels for this machine and keep them in the cache.

    Without this command, the first call of a loss builds its libraries. `--device cuda` compiles
    the CUDA kernels without a GPU too. These environment variables apply: LOSSCLI_CACHE_DIR, CXX,
    CUDACXX, CUDA_HOME, CUDAHOSTCXX, LOSSCLI_CUDA_ARCHITECTURES ("90;100") and MAX_JOBS.
    """
    from losscli.build.builder import build
    from losscli.build.diagnosis import is_report

    if command_ and everything:
        raise UsageError("--for builds what a command needs, and --all everything. Leave out one.")

    def targets_of(device: str) -> list[Target]:
        if command_:
            return _needed(command_, losses, device)
        wanted = losses or (*LOSSES, *ROW_LOSSES)
        return production(wanted, device) + (benchmarking(wanted, device) if everything else [])

    started = time.perf_counter()
    outcomes = build(device, targets_of, force=force, notify=note)
    seconds = time.perf_counter() - started
    logs = [outcome.log for outcome in outcomes] if verbose else []
    for line in (line for log in logs for line in log.splitlines()):
        if not is_report(line):  # ptxas's resources have a table of their own
            tell(line)
    rows = [(outcome.target, outcome.status, str(outcome.path or "")) for outcome in outcomes]
    emit(text((Table(("library", "status", "path"), rows),)))
    unusual = (outcome for outcome in outcomes if outcome.reason)
    for (state, reason), found in grouped(unusual, lambda o: (o.status, o.reason)).items():
        emit(f"{', '.join(each.target for each in found)} {state}: {reason}")
    if built := sum(outcome.fresh for outcome in outcomes):
        emit(f"{built} {'library' if built == 1 else 'libraries'} built in {seconds:.1f} s")
    _show_kernels(logs)
    if headers:
        from losscli.build.headers import precompile

        emit(f"PyTorch's header is precompiled in {precompile()}")


def _needed(command: str, losses: tuple[str, ...], device: str) -> list[Target]:
    from losscli.config.expansion import asked_for, rows
    from losscli.config.loader import load_config

    config = load_config(CONFIGS[command], {"losses": losses} if losses else {})
    asked = ((row[1], row[2]) for row in rows(config.blocks, device) if asked_for(*row))
    return [*libraries(asked, device), *([Target(BENCH, device)] if command == "bench" else [])]


def _show_kernels(logs: Sequence[str]) -> None:
    from losscli.build.diagnosis import kernels_of, readable_names

    if not (kernels := [kernel for log in logs for kernel in kernels_of(log)]):
        return
    names = readable_names([kernel.kernel for kernel in kernels])
    rows, spills = [], 0
    for name, kernel in zip(names, kernels, strict=True):
        spilled = kernel.spill_store_bytes, kernel.spill_load_bytes
        memory = map(format_bytes, (kernel.shared_bytes, kernel.stack_bytes, *spilled))
        rows.append((name, kernel.architecture, str(kernel.registers), *memory))
        spills += any(spilled)
    answer = Sentence(f"{len(kernels)} kernels, {spills} of them spill registers")
    headers = ("kernel", "architecture", "registers", "shared", "stack")
    emit("\n" + text((answer, Table((*headers, "spill stores", "spill loads"), rows))))
