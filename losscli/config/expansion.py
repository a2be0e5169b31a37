"""Expands a config into cases and selects its rows, without torch."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from losscli.cases import layouts
from losscli.cases.axes import FORWARD, FORWARD_BACKWARD, PassName
from losscli.cases.case import Case
from losscli.config.schema import Condition, Config, Exclude, Filter
from losscli.losses import ELEMENT, find_loss

if TYPE_CHECKING:
    from losscli.runs.records import Exclusion


def asked_for(config: Config, case: Case, implementation: str, pass_: PassName) -> bool:
    """Tell whether a config includes this implementation and pass of a case."""
    kept, rule = kept_and_excluding(config, case, implementation, pass_)
    return kept and rule is None


def those_asked_for(config: Config, case: Case, pass_: PassName) -> tuple[str, ...]:
    """Return the implementations that a config includes in a pass of a case."""
    return tuple(n for n in config.implementations if asked_for(config, case, n, pass_))


def kept_and_excluding(
    config: Config, case: Case, implementation: str, pass_: PassName
) -> tuple[bool, Exclude | None]:
    """Tell whether axes and filters keep a row, and return the first rule that excludes it."""
    # Forward has no grad_output, so it belongs to the case with grad_output 1.
    if case.grad_output not in (config.grad_outputs if pass_ == FORWARD_BACKWARD else (1.0,)):
        return False, None
    row = row_of(case, implementation, pass_, config.title)
    matching = (rule for rule in config.exclude if rule.conditions.items() <= row.items())
    return keeps(config.filters, row), next(matching, None)


def keeps(filters: Sequence[Filter], row: Mapping[str, object]) -> bool:
    """Tell whether a row matches a filter, or there are none."""

    def meets(condition: Condition) -> bool:
        given, values = row.get(condition.axis), condition.values
        matches = isinstance(given, str) and any(fnmatchcase(given, str(v)) for v in values)
        return (matches or given in values) != condition.negated

    return not filters or any(all(map(meets, filter)) for filter in filters)


def row_of(case: Case, implementation: str, pass_: PassName, table: str) -> dict[str, object]:
    """Return what filters and rules look at, by the names of axes."""
    names = ("loss", "size", "dtype", "reduction", "distribution", "layout", "grad_output")
    device = case.device.partition(":")[0]
    own = {"device": device, "implementation": implementation, "pass": pass_, "table": table}
    return {**case.params, **{name: getattr(case, name) for name in names}, **own}


def expand(config: Config, device: str) -> Iterator[Case]:
    """Yield a config's distinct cases in order. A loss without a reduction uses its first one."""
    return iter(dict.fromkeys(_expand(config, device)))


def _expand(config: Config, device: str) -> Iterator[Case]:
    grad_outputs = config.grad_outputs
    if FORWARD in config.passes and 1.0 not in grad_outputs:
        grad_outputs = (1.0, *grad_outputs)
    for choice, size, dtype, reduction, distribution, layout, grad_output in itertools.product(
        *(config.losses, config.sizes, config.dtypes, config.reductions),
        *(config.inputs.distribution, config.layouts, grad_outputs),
    ):
        spec = find_loss(choice.name)
        if not spec.takes(size):
            continue
        whole = config.whole_targets and spec.unit == ELEMENT
        usual = size if whole else spec.default_target_shape(size)
        shape, target = layouts.shapes_of(size, layout, usual)
        axes = {p.name: choice.parameters.get(p.name, (p.default,)) for p in spec.parameters}
        for values in itertools.product(*axes.values()):
            yield Case(
                loss=spec.name,
                shape=shape,
                target_shape=target,
                dtype=dtype,
                reduction=reduction if reduction in spec.reductions else spec.reductions[0],
                device=device,
                params=dict(zip(axes, values, strict=True)),
                distribution=distribution,
                seed=config.inputs.seed,
                scale=config.inputs.scale,
                layout=layout,
                grad_output=grad_output,
                ranks=config.ranks,
                placement=config.placement,
            )


def rows(tables: Iterable[Config], device: str) -> Iterator[tuple[Config, Case, str, PassName]]:
    """Yield each table's cases, implementations and passes, unfiltered."""
    for table in tables:
        for case in expand(table, device):
            for name, pass_ in itertools.product(table.implementations, table.passes):
                yield table, case, name, pass_


def excluded(config: Config, device: str) -> tuple["Exclusion", ...]:
    """Return each ``exclude`` rule that removes rows, with their number."""
    from losscli.runs.records import Exclusion  # takes a while to import

    every = rows((block for block in config.blocks if block.exclude), device)
    found = (kept_and_excluding(*row) for row in every)
    counts = Counter(rule for kept, rule in found if kept and rule is not None)
    return tuple(Exclusion(str(rule), rows, rule.reason) for rule, rows in counts.items())
