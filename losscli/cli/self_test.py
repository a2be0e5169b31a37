"""`losscli self-test`: whether timer, checks and judge can be trusted here."""

import json
import os
from collections.abc import Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click

from losscli.cli import options
from losscli.cli.completion import OneOf
from losscli.cli.ranks import device_of, facts_of, place_of, run_in_ranks
from losscli.console.notes import note
from losscli.console.streams import emit, tell
from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UsageError, worst
from losscli.machine.devices import let_threads_sleep
from losscli.ranks.place import Place

TIMER, CHECKS, JUDGE = TESTS = ("timer", "checks", "judge")
FOR_JUDGE = ("table", "md", "json")


@click.command("self-test")
@click.argument(
    "test", type=OneOf("self-test", TESTS), metavar=f"[{'|'.join(TESTS)}]", required=False
)
@options.device_option(default="auto", show_default=True)
@options.number_option(
    "--ranks",
    "Run the checks on losses whose operands are split over N processes (ranks); only for "
    "`checks`.",
)
@options.keep_going_option
@options.output_options
@options.examples(
    "losscli self-test",
    "losscli self-test checks --ranks 2",
    "losscli self-test timer --device cuda",
    "losscli self-test checks --format json -o checks.json",
    "losscli self-test judge",
    after="Exit codes: 1 the timer, a check or a verdict is wrong, 4 the device cannot be used, or "
    "this machine lacks a tool for some files and no verdict is wrong, 130 interrupted "
    "(the report has the finished results).",
)
def command(
    test: str | None,
    device: str,
    ranks: int | None,
    keep_going: bool,
    format: str,
    output: Path | None,
) -> int:
    """Test the timer, the checks and the judge of losscli itself on this machine.

    `timer` measures work of a known length and compares calls with and without a planted
    difference, in less than a minute. `checks` runs the checks on implementations that are wrong on
    purpose, and on legitimate ones, in a few minutes; with --ranks on losses that are split over
    ranks. Without an argument these two run. `judge` judges files that deceive, crash, hang or are
    wrong, and legitimate ones, in six minutes on two cores.
    """
    if ranks is not None and test != CHECKS:
        raise UsageError(f"--ranks is only for checks: losscli self-test checks --ranks {ranks}.")
    if test is None and (output is not None or format not in ("table", "md")):
        given = "-o" if output is not None else f"--format {format}"
        said = f"{given} takes one report, but two self-tests write two."
        raise UsageError(f"{said} Name one: timer or checks.")
    if test == JUDGE and format not in FOR_JUDGE:
        raise UsageError(f"self-test judge writes {', '.join(FOR_JUDGE)}, not {format}.")

    if test == CHECKS:  # as in verify; the timer uses bench's threads
        let_threads_sleep(os.environ)

    place = None if ranks is None else place_of(ranks, device)
    options.hold(output, kind="" if test == JUDGE else "self-test")
    if test == JUDGE:
        return _judge(device, keep_going, format, output)
    report: dict[str, Any] = {"format": format, "output": output, "keep_going": keep_going}
    if place:
        return _checks_of_ranks(place, device, **report)

    from losscli.cli.running import begin, run_jobs
    from losscli.machine.devices import resolve_device

    resolved, code = resolve_device(device), EXIT_OK
    if test != CHECKS:
        from losscli.bench import selftest as timer

        plan = timer.plan(timer.bench_of(resolved))
        report["weights"] = [1.0] * len(plan)
        code = run_jobs(begin("timer-test", resolved), plan, timer.run, **report)
    if test != TIMER and code <= EXIT_FAILED and (not code or keep_going):
        from losscli.verify.selftest import run as checks

        if test is None:
            emit()
        run, tests = begin("self-test", resolved), checks.plan(resolved)
        report["weights"] = [1.0] * len(tests)
        code = max(code, run_jobs(run, tests, checks.run, **report))
    return code


def _checks_of_ranks(place: Place, device: str, **report: Any) -> int:
    from losscli.cli.running import begin
    from losscli.implementations import libraries
    from losscli.operators import loading
    from losscli.ranks.group import join
    from losscli.verify import ranks
    from losscli.verify.selftest import run as checks

    own = device_of(device, place)
    group = join(place, own)
    tests = checks.plan_of_ranks(own, place.size)
    loading.build_ahead(libraries(((t.case, t.implementation.name) for t in tests), own))
    results_of = partial(checks.run, run_job=partial(ranks.run, group=group))
    run = begin("self-test", own, facts=facts_of(group, own))
    return run_in_ranks(run, tests, results_of, weights=[1.0] * len(tests), **report)


def _judge(device: str, keep_going: bool, format: str, output: Path | None) -> int:
    from losscli.cli.running import follow
    from losscli.judge.batch import judge_batch
    from losscli.judge.pool import LocalPool
    from losscli.judge.selftest import Judged, candidates, judged_files
    from losscli.judge.verdict import Verdict
    from losscli.machine.devices import resolve_device
    from losscli.render.output import write_report
    from losscli.render.text import markdown, text
    from losscli.runs.encoding import json_line
    from losscli.runs.journal import kept
    from losscli.views.self_tests import of_judge

    resolved = resolve_device(device)
    files = candidates(resolved)

    def judged() -> Generator[Verdict, None, None]:
        # Files that need no GPU come first: more can be judged at once.
        for gpus in ((), (resolved,)):
            chosen = [each.job(resolved) for each in files if each.needs_gpu == bool(gpus)]
            # Untimed files come first: their processes yield the cores.
            chosen.sort(key=lambda job: job.timed)
            with closing(judge_batch(chosen, LocalPool(gpus=gpus, notify=note))) as verdicts:
                yield from verdicts

    found: list[Judged] = []
    interrupted = False
    try:
        with closing(follow(judged(), len(files), "judging")) as verdicts:
            for outcome in judged_files(verdicts, files):
                found.append(outcome)
                if outcome.exit_code == EXIT_FAILED and not keep_going:
                    note("stopped at the first failure (--fail-fast)")
                    break
    except KeyboardInterrupt:
        interrupted = True
    if found:
        with kept("self-test", lambda: "\n".join(json_line(each.to_json()) for each in found)):
            report = text(of_judge(found)) if format == "table" else markdown(of_judge(found))
            if format == "json":
                report = json.dumps([each.to_json() for each in found], indent=1)
            write_report(report, format, output)
    left = f"{len(files) - len(found)} of {len(files)} files are not judged"
    if interrupted:
        tell(f"losscli: interrupted; {left}")
        return EXIT_INTERRUPTED
    if len(found) < len(files):
        note(left)
    return worst(each.exit_code for each in found)
