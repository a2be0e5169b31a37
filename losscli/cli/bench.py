"""`losscli bench`: times implementations, with their memory and error."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from losscli.cases.axes import CACHES, HOST, MODES
from losscli.cli import options
from losscli.cli.ranks import arrange, facts_of, load, ranks_of_config_option, run_in_ranks
from losscli.cli.variables import option, switch
from losscli.config.fields import check_processes
from losscli.config.schema import PROCESSES, Timing
from losscli.console.notes import has_status, note, say
from losscli.console.streams import emit
from losscli.errors import EXIT_OK, UsageError
from losscli.ranks.place import is_silent
from losscli.runs.parts import Part, deal
from losscli.runs.saved import check_run_name, prepare
from losscli.units import parse_fraction, parse_seconds

if TYPE_CHECKING:
    from losscli.bench.plan import Task
    from losscli.runs.records import BenchResult, Run

_time_option = partial(option, type=parse_seconds, metavar="TIME")


@click.command("bench")
@options.axis_options
@_time_option("--min-time", help="Sample each pass of a case for at least TIME.")
@_time_option("--max-time", help="Stop sampling a pass after TIME and three samples.")
@_time_option("--budget", help="End the run after TIME; skip what is left then.")
@option(
    "--confidence",
    type=parse_fraction,
    metavar="FRACTION",
    help="Stop when each median's interval is within FRACTION.",
)
@options.named_option(
    *("--cache", CACHES), f"Time with a {' or a '.join(CACHES)} cache.", metavar="STATE"
)
@options.named_axis("--mode", "mode", "mode", MODES)
@option(
    "--processes",
    type=check_processes,
    metavar="N",
    help=f"Sample in N fresh processes, by default {PROCESSES['cpu']} on a CPU, "
    f"{PROCESSES['cuda']} on a GPU; with 1 in the command's own one.",
)
@options.number_option("--threads", "Use N threads on the CPU.")
@ranks_of_config_option
@option("--save", type=check_run_name, metavar="NAME", help="Save the run as NAME.")
@switch("--force", help="Let --save overwrite a run of the same name.")
@option(
    "--resume",
    metavar="RUN",
    help="Continue the interrupted RUN; needs -o or --save.",
    shell_complete=options.COMPLETE_RUNS,
)
@options.columns_option
@options.verbose_option
@options.output_options
@options.examples(
    "losscli bench --loss mse --size 8Kx8K --dtype float32,bfloat16",
    "losscli bench --budget 30s --columns median,p95,p99,max,memory",
    "losscli bench --loss hinge --impl custom,reference,my_kernel.py --save mine",
    "losscli bench -c full.yaml --part 3/16 --format json -o part3.json",
)
def command(
    *,
    dry_run: bool,
    list_cases: bool,
    part: Part | None,
    threads: int | None,
    ranks: int | None,
    save: str | None,
    force: bool,
    resume: str | None,
    output: Path | None,
    **axes: Any,
) -> int:
    """Time implementations side by side, after checking each against the oracle.

    Without -c, bench runs the cases of default.yaml. Options that choose cases take several values:
    --dtype float32,bfloat16.

    Exit codes: 1 an implementation is wrong, 4 no case could run on this machine, 130 interrupted
    (the report has the finished results).
    """
    if resume is not None and output is None and save is None:
        outputs = "-o PATH or --save NAME, where it writes the results that it adds"
        raise UsageError(f"--resume needs {outputs}.")
    began, report = perf_counter(), options.of_report(axes)
    given = {each.name: axes.pop(each.name) for each in fields(Timing)}
    config = options.resolve_config(**axes)
    config = config.changed(lambda block: replace(block, timing=_override(block.timing, given)))
    if config.blocks[0].placement:
        if (processes := given["processes"]) not in (None, 1):
            said = f"--processes {processes} is not for ranks, which call together."
            raise UsageError(f"{said} Leave it out.")
        if resume is not None:
            raise UsageError("--resume continues no run over ranks. Leave it out.")
    config, place = arrange(config, ranks, part, listing=list_cases or dry_run)
    saved = unfinished = None
    if not (list_cases or dry_run):
        saved = prepare(save) if save and not is_silent() else None
        if saved and saved.exists() and not force:
            _ask_to_overwrite(saved, resume)
        unfinished = options.hold(output, saved, kind="bench", resume=resume)

    device = load(config, place, list_cases=list_cases, dry_run=dry_run)
    from losscli.bench import plan as planning
    from losscli.bench.processes import Processes, environment
    from losscli.bench.ranks import runner_of_ranks
    from losscli.bench.runner import Runner
    from losscli.cli.dry_run import duration, print_plans
    from losscli.cli.running import begin, run_jobs
    from losscli.config.expansion import excluded
    from losscli.machine import memory
    from losscli.machine.pytorch import torch
    from losscli.operators import loading
    from losscli.ranks.group import announce, join, largest

    if dry_run:
        print_plans(config, device, memory.free_bytes(device))
        emit(duration(min(planning.seconds_of_all(planning.plan(config, device)), config.budget)))
        return EXIT_OK

    tasks = planning.plan(config, device)
    if threads is not None:
        torch.set_num_threads(threads)
    left_out, found = excluded(config, device), environment(device, tasks)
    if place:
        group = join(place, device)
        announce(group)
        found |= facts_of(group, device)
    run = begin(
        "bench", device, plan=planning.plan_id(tasks), part=part, excluded=left_out, facts=found
    )
    tasks = deal(tasks, part, case=lambda task: task.case, seconds=planning.seconds_of)
    if unfinished:
        run, tasks = _resume(unfinished, run, tasks)

    notify = cache(note)  # tells each once
    report |= {"output": output, "saved": saved, "columns": config.columns}
    report["weights"] = [planning.seconds_of(task) for task in tasks]
    report["guess"] = min(planning.seconds_of_all(tasks), config.budget)
    most = memory.most_bytes(device)
    possible = planning.able(tasks, most)
    if place:
        loading.build_ahead(planning.libraries_of(possible, device))
        runner = runner_of_ranks(group, device, notify, _show)
        began = runner.clock() - largest(group, perf_counter() - began)
        jobs = planning.Schedule(tasks, config.budget, lambda: runner.clock() - began)
        return run_in_ranks(run, jobs, runner.run, **report)
    if not possible:  # reports why; starts no process and builds nothing
        return run_jobs(run, tasks, Runner(device, notify=note).run, **report)

    def build(tasks: Sequence[Task]) -> None:
        loading.build_ahead(planning.libraries_of(planning.able(tasks, most), device))

    jobs = planning.Schedule(tasks, config.budget, lambda: perf_counter() - began, build)
    with Processes(device, run.environment["threads"], notify=notify, show=_show) as started:
        if possible[0].timing.several_processes:
            started.start([0])  # while the compilers run
        code = run_jobs(run, jobs, started.run, **report)
    context = click.get_current_context()
    sources = (context.get_parameter_source(each.name or "") for each in context.command.params)
    if code == EXIT_OK and ParameterSource.COMMANDLINE not in sources:
        note(
            "next: `losscli bench --loss huber --size 8Kx8K --save NAME` saves a run for "
            "comparison, `losscli new my_kernel` writes a kernel to start from, `losscli judge "
            "my_kernel.py` judges it"
        )
    return code


def _show(results: Sequence[BenchResult]) -> None:
    from losscli.runs.records import SKIPPED
    from losscli.views.bench import line

    for result in results if has_status() else ():
        if result.status != SKIPPED:
            say(line(result))


def _resume(path: Path, run: Run, tasks: Sequence[Task]) -> tuple[Run, list[Task]]:
    from msgspec.structs import replace

    from losscli.bench.plan import remaining
    from losscli.runs.journal import read_unfinished
    from losscli.runs.records import BenchResult

    before, unlike = read_unfinished(path, run, host=any(task.mode == HOST for task in tasks))
    for difference in unlike:
        note(f"changed since the run began: {difference}")
    left, kept = remaining(tasks, before.of(BenchResult))
    done = sum(map(len, tasks)) - sum(map(len, left))
    note(f"{done} of {sum(map(len, tasks))} results are already measured")
    return replace(run, created=before.created, results=tuple(kept)), left


def _ask_to_overwrite(saved: Path, resume: str | None) -> None:
    if resume is not None and resume in (saved.stem, str(saved)):
        return  # --resume continues this run
    question = f"a run named '{saved.stem}' is already saved."
    asked = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if asked and click.confirm(f"losscli: {question} Overwrite it?", err=True):
        return
    raise UsageError(f"{question} Choose another name, or add --force to overwrite it.")


def _override(timing: Timing, given: Mapping[str, Any]) -> Timing:
    """A maximum given alone lowers the config's minimum; a minimum raises no maximum."""
    shortest, longest = given["min_time"], given["max_time"]
    if shortest is not None and longest is not None and shortest > longest:
        raise UsageError(f"--min-time {shortest:g} s is longer than --max-time {longest:g} s.")
    if longest is None and shortest is not None and shortest > timing.max_time:
        said = f"--min-time {shortest:g} s is longer than the config's max_time of"
        advice = "Add --max-time TIME, no shorter than --min-time."
        raise UsageError(f"{said} {timing.max_time:g} s. {advice}")
    changes = {key: value for key, value in given.items() if value not in (None, ())}
    if longest is not None:
        changes.setdefault("min_time", min(timing.min_time, longest))
    return replace(timing, **changes)
