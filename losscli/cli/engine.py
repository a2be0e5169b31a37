"""Where `losscli judge` judges: processes of this machine, or a Ray cluster with --on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from losscli.cli.variables import option
from losscli.console.notes import note
from losscli.errors import UsageError
from losscli.judge.ray_address import client_address

if TYPE_CHECKING:
    from losscli.judge.pool import JudgePool
    from losscli.judge.ray_address import Address

USUAL = "ray"


def _engine(text: str) -> Address | str:
    if text == USUAL:
        return USUAL
    name, found, address = text.partition("://")
    if name != USUAL or not found:
        raise UsageError(f"unknown engine '{text}'. Write ray or ray://HOST:PORT.")
    return client_address(address)


on_option = option(
    "--on",
    type=_engine,
    metavar="ENGINE",
    help="Judge on a Ray cluster: ray, or ray://HOST:PORT of a Ray Client server.",
)


def local_pool(workers: int | None, device: str | None) -> JudgePool:
    """Return the judges of this machine for a device's jobs."""
    from losscli.judge.pool import LocalPool, default_workers, usable_gpus

    gpus = [] if device == "cpu" else usable_gpus()
    return LocalPool(workers or default_workers(len(gpus)), gpus=gpus, notify=note)


def farm(engine: Address | str, workers: int | None, *, cached: bool) -> JudgePool:
    """Return the judges of a cluster; UsageError for an invalid address."""
    from losscli.judge.farm import Farm
    from losscli.judge.ray_cluster import RayCluster

    cluster = RayCluster(None if engine == USUAL else engine, workers=workers, notify=note)
    return Farm(cluster, workers=workers, cached=cached, notify=note)
