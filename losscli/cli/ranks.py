"""The option ``--ranks``, and what a command does in several ranks."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from losscli.cli.variables import option
from losscli.config.fields import whole_number
from losscli.config.schema import Config
from losscli.console.notes import VARIABLE as QUIET_VARIABLE
from losscli.errors import UnfitError, UsageError
from losscli.implementations import is_file
from losscli.machine.pytorch import torch
from losscli.ranks.place import ADVICE, Place, is_silent, seconds_of_collectives, take
from losscli.ranks.placements import CUTS, PLACEMENTS

if TYPE_CHECKING:
    from losscli.ranks.group import Group

MOST_RANKS = 1024

ranks_option = option(
    "--ranks",
    type=whole_number("number of ranks", 1, MOST_RANKS),
    metavar="N",
    help="Split the operands over N processes; verify and bench need a config with a placement, "
    "such as sharded.",
)


def arrange(config: Config, ranks: int | None) -> tuple[Config, Place | None]:
    """Return a config over ranks, and this process's place or None to start ranks."""
    if not any(block.placement for block in config.blocks):
        _refuse_ranks(ranks)
        return config, None
    for block in config.blocks:
        _check_split(block)
    place = place_of(ranks)
    size = place.size if place else ranks or 1

    def split(block: Config) -> Config:
        return replace(block, ranks=size, timing=replace(block.timing, processes=1))

    return config.changed(split), place


def place_of(ranks: int | None) -> Place | None:
    """Return this process's place among the ranks, or None to start them."""
    seconds_of_collectives()  # raises an error before any rank is started
    if ranks is not None and not _is_rank():
        return None
    place = Place.of_environment()
    if place is None:
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
        raise UsageError(
            f"torchrun has started {size} ranks, which would all do the same: the config has no "
            f"placement. {advice}."
        )


def _check_split(block: Config) -> None:
    table = f" of the table '{block.title}'" if block.title else ""
    if not block.placement:
        raise UsageError(
            f"the config{table} has no placement, others of the run have one. Add `placement: "
            f"{PLACEMENTS[0]}` or run it alone."
        )
    for choice in block.losses:
        if choice.name not in CUTS:
            raise UsageError(
                f"{choice.name}{table} cannot be split by {block.placement}. Choose from: "
                f"{', '.join(CUTS)}."
            )
    for name in block.implementations:
        if is_file(name):
            raise UsageError(
                f"{name}: a file runs in one process and takes no shards. Leave it out."
            )


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
        raise UnfitError(
            f"{ranks} ranks need {ranks} GPUs, but this machine has {count}. Start fewer ranks, or "
            "use --device cpu."
        )


def start(config_device: str, ranks: int) -> int:
    """Run this command in ranks; return the first one's exit code."""
    _check_gpus(config_device, ranks)
    from losscli.ranks.launch import launch

    return launch(ranks, sys.argv[1:])


def device_of(config_device: str, place: Place | None) -> str:
    """Return the device to run on: for a rank the CPU, or the GPU of its local rank."""
    from losscli.machine.devices import resolve_device

    if place and ":" in config_device:
        _check_gpus(config_device, place.size)
    found = resolve_device(config_device)
    return resolve_device(f"cuda:{place.local_rank}") if place and found != "cpu" else found


def facts_of(group: Group, device: str) -> dict[str, Any]:
    """Return what a record holds of all ranks: their devices."""
    own: Mapping[str, Any] = {
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
