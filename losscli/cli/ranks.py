"""The option ``--ranks``, and what a command does in several ranks."""

import os
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from losscli.cli.options import number_option
from losscli.config.schema import Config
from losscli.console.notes import LOADING, QUIET_VARIABLE, status
from losscli.errors import UnfitError, UsageError
from losscli.implementations import is_file
from losscli.machine.pytorch import torch
from losscli.ranks.place import ADVICE, Place, is_silent, seconds_of_collectives, take
from losscli.ranks.placements import CUTS, PLACEMENTS
from losscli.runs.parts import Part

if TYPE_CHECKING:
    from losscli.ranks.group import Group


ranks_of_config_option = number_option(
    "--ranks", "Run N processes (ranks), for configs such as sharded."
)


def arrange(
    config: Config, ranks: int | None, part: Part | None, *, listing: bool
) -> tuple[Config, Place | None]:
    """Return a config over ranks, and this process's place; see :func:`place_of`."""
    if part and listing:
        said = f"--part {part} is for a run; --list and --dry-run list all parts."
        raise UsageError(f"{said} Leave one of them out.")
    if not any(block.placement for block in config.blocks):
        _refuse_ranks(ranks)
        return config, None
    for block in config.blocks:
        _check_split(block)
    place = place_of(ranks, config.device, listing=listing)
    size = place.size if place else ranks or 1
    return config.changed(
        lambda block: replace(block, ranks=size, timing=replace(block.timing, processes=1))
    ), place


def place_of(ranks: int | None, config_device: str, *, listing: bool = False) -> Place | None:
    """Return this process's place among the ranks; None where it lists what they would run.

    A process that is no rank otherwise runs this command in ranks, and exits as the first does.
    """
    seconds_of_collectives()  # raises an error before any rank is started
    if ranks is not None and not _is_rank():
        if listing:
            return None
        _check_gpus(config_device, ranks)
        from losscli.ranks.launch import launch

        click.get_current_context().exit(launch(ranks, sys.argv[1:]))
    if (place := Place.of_environment()) is None:
        raise UsageError(f"operands are split over ranks, but no ranks were started. {ADVICE}.")
    if ranks not in (None, place.size):
        raise UsageError(f"--ranks {ranks} within {place.size} ranks of torchrun. Leave out one.")
    take(place)
    if is_silent():
        os.environ[QUIET_VARIABLE] = "1"
    return place


def _is_rank() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _refuse_ranks(ranks: int | None) -> None:
    advice = "Use -c sharded or sharded-cpu, or add `placement: vocabulary` to the config"
    if ranks is not None:
        raise UsageError(f"--ranks {ranks} splits nothing: the config has no placement. {advice}.")
    if _is_rank() and os.environ.get("WORLD_SIZE", "1") != "1" and "LOCAL_RANK" in os.environ:
        size = os.environ["WORLD_SIZE"]
        said = f"torchrun has started {size} ranks, which would all do the same"
        raise UsageError(f"{said}: the config has no placement. {advice}.")


def _check_split(block: Config) -> None:
    table = f" of the table '{block.title}'" if block.title else ""
    if not block.placement:
        said = f"the config{table} has no placement, others of the run have one."
        raise UsageError(f"{said} Add `placement: {PLACEMENTS[0]}` or run it alone.")
    for choice in block.losses:
        if choice.name not in CUTS:
            said = f"{choice.name}{table} cannot be split by {block.placement}."
            raise UsageError(f"{said} Choose from: {', '.join(CUTS)}.")
    if file := next(filter(is_file, block.implementations), ""):
        raise UsageError(f"{file}: a file runs in one process and takes no shards. Leave it out.")


def _check_gpus(config_device: str, ranks: int) -> None:
    from losscli.machine import devices

    if config_device == "cpu":
        return
    if ":" in config_device:
        raise UsageError(f"device {config_device} is one GPU, but each rank has its own. Use cuda.")
    count = 0 if devices.torch_without_cuda() else len(devices.find_gpus())
    if config_device == "auto" and count == 0:
        return
    if count < ranks:
        said = f"{ranks} ranks need {ranks} GPUs, but this machine has {count}."
        raise UnfitError(f"{said} Start fewer ranks, or use --device cpu.")


def load(config: Config, place: Place | None, *, list_cases: bool, dry_run: bool) -> str:
    """Import what runs cases, and return the device; exit if the cases are only listed."""
    status(LOADING)
    from losscli.cli.dry_run import print_names

    device = device_of(config.device, place)
    status("")
    is_first = place is None or place.rank == 0
    if list_cases and is_first:
        print_names(config, device)
    if list_cases or (dry_run and not is_first):
        click.get_current_context().exit()
    return device


def device_of(config_device: str, place: Place | None) -> str:
    """Return the device to run on: for a rank the CPU, or the GPU of its local rank."""
    from losscli.machine.devices import resolve_device

    if place and ":" in config_device:
        _check_gpus(config_device, place.size)
    found = resolve_device(config_device)
    return resolve_device(f"cuda:{place.local_rank}") if place and found != "cpu" else found


def facts_of(group: "Group", device: str) -> dict[str, Any]:
    """Return what a record holds of all ranks: their devices."""
    own = {
        "rank": group.rank,
        "host": socket.gethostname(),
        "device": device,
        "gpu": None if device == "cpu" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
    }
    return {"ranks": group.gather("reports its device", own)}


def run_in_ranks(*arguments: Any, **report: Any) -> int:
    """Run jobs as one rank, of which the first reports, and leave the group."""
    from losscli.cli.running import run_jobs
    from losscli.ranks.group import leave

    code = run_jobs(*arguments, **report)
    leave()
    return code
