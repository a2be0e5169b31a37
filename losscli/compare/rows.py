"""The rows of a run as a comparison knows them: by what, and by which name. Without torch."""

from __future__ import annotations

from losscli.axes import COLD, DEVICE
from losscli.cases import Case
from losscli.runs.records import OK, BenchResult, Run

Key = tuple[object, ...]
"""The values of ``PARTS``."""
PARTS = (
    *("table", "loss", "parameters", "size", "size of the target", "dtype", "reduction", "device"),
    *("distribution", "seed", "scale", "layout", "incoming gradient"),
    *("pass", "mode", "cache", "implementation"),
)
"""What rows are told apart by. The implementation is the last."""


def key(result: BenchResult) -> Key:
    """Return what a row is known by: of two GPUs of one kind either will do."""
    return _key(result, _inputs(result.case))


def timed(run: Run) -> dict[Key, BenchResult]:
    """Return the results of a run that have a time."""
    found: dict[Key, BenchResult] = {}
    case: Case | None = None
    inputs: Key = ()
    for result in run.results:
        if isinstance(result, BenchResult) and result.seconds and result.status == OK:
            if result.case is not case:  # neighbours share it
                case, inputs = result.case, _inputs(result.case)
            found[_key(result, inputs)] = result
    return found


def label(result: BenchResult) -> str:
    """Return ``mse 1Kx1K float32 mean, custom, forward``.

    Mode and cache follow where they are not the usual, and the table where there are several.
    """
    words = [result.case.name, result.implementation, result.pass_.replace("_", "+")]
    words += how(result.mode, result.cache)
    text = ", ".join(words)
    return f"{text} ({result.table})" if result.table else text


def how(mode: str, cache: str) -> list[str]:
    """Return a mode and a state of the caches, as far as they are not the usual."""
    return [word for word, usual in ((mode, DEVICE), (cache, COLD)) if word != usual]


def _key(result: BenchResult, inputs: Key) -> Key:
    how = result.pass_, result.mode, result.cache
    return result.table, *inputs, *how, result.implementation


def _inputs(case: Case) -> Key:
    device, parameters = case.device.partition(":")[0], tuple(case.params.values())
    data = case.distribution, case.seed, case.scale, case.layout, case.grad_output
    sizes = case.shape, case.target_shape
    return case.loss, parameters, *sizes, case.dtype, case.reduction, device, *data
