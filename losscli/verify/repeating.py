"""Repeats one check of one implementation on one case: the line of Python below a failure."""

from losscli.cases import axes
from losscli.cases.case import Case
from losscli.cases.layouts import shapes_of
from losscli.config.fields import check_device, check_grad_output, check_name
from losscli.errors import UsageError
from losscli.implementations import find_implementation
from losscli.implementations.builtin import of_file
from losscli.implementations.source import Source
from losscli.losses import MODEL, REDUCTIONS, Reduction, Shape, find_loss
from losscli.machine import devices
from losscli.runs.records import VerifyResult
from losscli.units import format_size


def repeat(
    implementation: str,
    check: str,
    loss: str,
    shape: Shape,
    target_shape: Shape | None = None,
    *,
    dtype: axes.DType = "float32",
    reduction: Reduction = "mean",
    device: str = "cpu",
    distribution: axes.Distribution = "uniform",
    scale: float = 1.0,
    layout: axes.Layout = axes.CONTIGUOUS,
    grad_output: axes.GradOutput = 1.0,
    seed: int = 0,
    ulp: float | None = None,
    interleaved: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
    call: str = "",
    **parameters: float,
) -> None:
    """Run a check of an implementation once more, and print the result.

    Names are those of ``losscli list``, and values are written as in a config. ``shape`` is the
    input's, or with a layout the size in a config; ``target_shape`` defaults to a config's. ``ulp``
    replaces narrower tolerances; ``interleaved`` names the losses that the check calls in
    between; ``beside`` is its former name.
    ``call`` is an expression that calls a file, as that of ``losscli judge --call``.

    Raises:
        UsageError: a name is unknown.
        UnfitError: this machine has no such device.
    """
    from losscli.verify.checks import find_check
    from losscli.verify.runner import run, split

    spec = find_loss(loss)
    if not spec.takes(shape):
        raise UsageError(f"{loss} takes shapes of {spec.size_example}, not {format_size(shape)}")
    check_name("dtype", dtype, axes.DTYPES)
    check_name("reduction", reduction, REDUCTIONS)
    check_name("distribution", distribution, axes.DISTRIBUTIONS)
    device = devices.resolve_device(check_device(device))
    check_name("layout", layout, axes.LAYOUTS)
    values = distribution, seed, scale, layout, check_grad_output(str(grad_output))
    case = Case(loss, shape, (), dtype, reduction, device, spec.resolve(parameters), *values)
    case = case.reshaped(shape, target_shape, layout)
    called = of_file(Source.read(implementation).called(call)) if call else None
    trial = called or find_implementation(implementation), find_check(check)
    others = tuple(find_loss(name).name for name in (*interleaved, *beside))
    jobs = split(case, [trial], ulp, {trial[0].name: others})
    if not jobs:
        print(f"NOT RUN {case.name}: {trial[1].why_not(case, trial[0])}")
    for job in jobs:
        for result in run(job):
            name = f"{result.case.name}, {implementation}, {result.check}"
            told = f": {result.told}" if result.told else ""
            print(f"{result.status.upper()} {name}{told}")


def line(result: VerifyResult, call: str = "") -> str:
    """Return the Python line that repeats a result; empty for a Model and for ranks."""
    case = result.case
    if case.spec.unit == MODEL or case.placement:
        return ""
    given: list[object] = [result.implementation, result.check, case.loss, case.size]
    usual = case.spec.default_target_shape(case.size)
    if case.target_shape != shapes_of(case.size, case.layout, usual)[1]:
        given.append(case.target_shape)
    words = [_literal(value) for value in given]
    values = {name: getattr(case, name) for name in _DEFAULTS} | dict(case.params)
    defaults = _DEFAULTS | {p.name: p.default for p in case.spec.parameters}
    words += [f"{n}={_literal(v)}" for n, v in values.items() if v != defaults[n]]
    words.append(f"seed={case.seed}")
    if result.tolerance_ulp is not None:
        words.append(f"ulp={result.tolerance_ulp:g}")
    if result.interleaved:
        words.append(f"interleaved={_literal(result.interleaved)}")
    if call:
        words.append(f"call={call!r}")
    return f"from losscli.verify import repeat; repeat({', '.join(words)})"


_DEFAULTS: dict[str, object] = {
    name: (repeat.__kwdefaults__ or {})[name]
    for name in ("dtype", "reduction", "device", "distribution", "scale", "layout", "grad_output")
}


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return f'"{value}"' if isinstance(value, str) else repr(value)
