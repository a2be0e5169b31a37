"""Results and runs made by hand: no machine has measured them."""

from typing import Any

from losscli.cases.case import Case
from losscli.losses import find_loss
from losscli.runs.measurements import Error, Seconds
from losscli.runs.records import FAILED, OK, SKIPPED, BenchResult, Run


def case(**changes):
    fields: dict[str, Any] = {
        "loss": "mse",
        "shape": (4096, 4096),
        "target_shape": (4096, 4096),
        "dtype": "float32",
        "reduction": "mean",
        "device": "cpu",
        "params": {},
        "distribution": "uniform",
        "seed": 0,
    }
    return Case(**(fields | changes))


def case_of(loss, shape, **changes):
    """Return a case of a loss by its spec: its defaults, and a mean where it has one."""
    spec = find_loss(loss)
    usual = {
        "target_shape": spec.default_target_shape(shape),
        "reduction": "mean" if "mean" in spec.reductions else spec.reductions[0],
    }
    params = spec.resolve(changes.pop("params", {}))
    return case(loss=loss, shape=shape, **usual | changes, params=params)


def small_case_of(loss, **changes):
    """Return a case of a dozen elements, or of two dozen where the loss has three dimensions."""
    shape = (3, 4) if find_loss(loss).takes((3, 4)) else (3, 2, 4)
    return case_of(loss, shape, distribution="normal", **changes)


def pair(input, target):
    return {"input": input, "target": target}


def result(implementation="custom", pass_="forward", median=2e-3, ratio=4.0, **changes):
    fields: dict[str, Any] = {
        "case": case(),
        "status": OK,
        "reason": "confidence: 3 samples",
        "seconds": Seconds(median, median * 0.95, median * 1.1, median * 0.9, (median,) * 3),
        "gbps": 67.1,
        "speedup": {} if implementation == "reference" else {"reference": ratio},
        "peak_extra_bytes": 2**21,
        "error": Error(1e-9, 1e-8, 0.5, 0.25, 1e-9),
    }
    return BenchResult(implementation=implementation, pass_=pass_, **(fields | changes))


def run(*results):
    return Run(
        kind="bench",
        command=("losscli", "bench"),
        created="2026-01-02T03:04:05+00:00",
        environment={"device": "cpu", "cpu": "A CPU", "threads": 2, "torch": "2.13.0"},
        results=results,
    )


PAIR = (result("reference", median=8e-3), result("custom"))
UNTIMED = {"seconds": None, "gbps": None, "speedup": {}, "peak_extra_bytes": None}


def failed(**changes):
    fields: dict[str, Any] = UNTIMED | {"status": FAILED, "reason": "loss: 9 ulp", "error": Error()}
    return result(**(fields | changes))


def skipped(**changes):
    fields: dict[str, Any] = UNTIMED | {"status": SKIPPED, "error": Error()}
    fields["reason"] = "needs 2 GiB"
    return result(**(fields | changes))


def timed(name, samples, **changes):
    middle = sorted(samples)[len(samples) // 2]
    seconds = Seconds(middle, min(samples), max(samples), min(samples), tuple(samples))
    return result(name, seconds=seconds, **changes)


def around(median, width=0.001, count=11):
    """Return samples within a width on both sides of a median."""
    return [median * (1 + width * (n - count // 2) / (count // 2)) for n in range(count)]
