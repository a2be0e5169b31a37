"""`losscli verify`: checks implementations against the float64 oracle."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from losscli.cli import options
from losscli.cli.completion import listed
from losscli.cli.ranks import arrange, facts_of, load, ranks_of_config_option, run_in_ranks
from losscli.cli.variables import switch
from losscli.config.check_names import CATCHES
from losscli.config.schema import Config
from losscli.console.streams import emit
from losscli.errors import EXIT_OK, UsageError
from losscli.implementations import is_own, libraries
from losscli.machine.devices import let_threads_sleep
from losscli.runs.parts import Part, deal

DEFAULT_CONFIG = "smoke.yaml"
"""Covers every loss, reduction and dtype, unlike the default of `losscli bench`."""


def _check(text: str) -> tuple[str]:
    from losscli.verify.checks import find_check

    return (find_check(text).name,)


@click.command("verify")
@options.axis_options
@options.axis(
    "--check",
    "checks",
    "NAME",
    _check,
    "Run only checks NAME,NAME (`losscli list checks`).",
    listed(lambda: CATCHES, commas=True),
)
@ranks_of_config_option
@switch("--quick", help="Run the cases of quick.yaml, like `-c quick`.")
@options.verbose_option
@options.output_options
@options.examples(
    "losscli verify --quick",
    "losscli verify --loss smooth_l1 --dtype float16",
    "losscli verify --loss mse --impl my_kernel.py --check gradients",
)
def command(
    *,
    checks: tuple[str, ...],
    dry_run: bool,
    list_cases: bool,
    part: Part | None,
    quick: bool,
    ranks: int | None,
    output: Path | None,
    **axes: Any,
) -> int:
    """Check losses and gradients against the formula in float64, the oracle.

    Without -c, verify runs the cases of smoke.yaml, in a few minutes. --quick takes half a minute:
    it runs no fused linear loss, and nothing in float64 or bfloat16. `-c thorough` takes longer.
    Without --impl, verify checks losscli's kernels if the config has them, else all its
    implementations.

    Options that choose cases take several values: --dtype float32,bfloat16.

    Exit codes: 1 a check failed, 4 no case could run on this machine, 130 interrupted (the report
    has the finished results).
    """
    if quick and (given := axes["config"]) is not None:
        raise UsageError(f"--quick runs quick.yaml, but -c asks for {given}. Leave out one.")
    if axes["config"] is None:
        axes["config"] = "quick.yaml" if quick else DEFAULT_CONFIG
    # Waiting threads sleep: the tensors are small, and there are several processes.
    let_threads_sleep(os.environ)
    report = options.of_report(axes)
    config = options.resolve_config(**axes)
    if not axes["implementations"]:
        config = config.changed(_of_our_own)
    config, place = arrange(config, ranks, part, listing=list_cases or dry_run)
    if not (list_cases or dry_run):
        options.hold(output, kind="verify")

    device = load(config, place, list_cases=list_cases, dry_run=dry_run)
    from losscli.cli.dry_run import duration, print_cases
    from losscli.cli.running import begin, run_jobs
    from losscli.config.expansion import excluded
    from losscli.machine import memory
    from losscli.operators import loading
    from losscli.ranks.group import announce, free_bytes, join
    from losscli.verify import ranks as over_ranks
    from losscli.verify.pool import Pool, processes_for, seconds_of, seconds_of_checks
    from losscli.verify.runner import plan, plan_id, possible
    from losscli.verify.shrink import Shrinker
    from losscli.views.phrases import count

    if dry_run:
        print_cases(config, device, memory.free_bytes(device))
        jobs = plan(config, device, checks=checks)
        emit(duration(seconds_of_checks(jobs, device)))
        if checks:
            emit(f"--check {','.join(checks)}: {count(sum(map(len, jobs)), 'check')} to run")
        return EXIT_OK

    facts, free_of = {}, memory.free_bytes
    if place:
        group = join(place, device)
        announce(group)
        facts, free_of = facts_of(group, device), partial(free_bytes, group)
    jobs = plan(config, device, free_of, checks)
    left_out = excluded(config, device)
    run = begin("verify", device, plan=plan_id(jobs), part=part, excluded=left_out, facts=facts)
    jobs = deal(jobs, part, case=lambda job: job.case, seconds=seconds_of)
    free = free_of(device)
    needed = libraries(possible(jobs, free), device)
    report |= {"output": output, "weights": list(map(len, jobs))}
    if place:
        loading.build_ahead(needed)
        follow = over_ranks.shrinker(group).follow
        return run_in_ranks(run, jobs, lambda job: follow(over_ranks.run(job, group)), **report)
    processes = processes_for(jobs, device) if any(possible(jobs, free)) else 0
    with Pool(jobs, processes, needed) as pool:
        follow = Shrinker().follow
        report["guess"] = seconds_of_checks(jobs, device)
        return run_jobs(run, jobs, lambda job: follow(pool.results_of(job)), **report)


def _of_our_own(config: Config) -> Config:
    own = tuple(filter(is_own, config.implementations))
    return replace(config, implementations=own or config.implementations)
