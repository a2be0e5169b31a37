"""How many rows each rule of a config's ``exclude`` leaves out."""

from __future__ import annotations

import itertools

from losscli.config.expansion import expand, judge
from losscli.config.schema import Config, Exclude
from losscli.runs.exclusion import Exclusion


def excluded(config: Config, device: str) -> tuple[Exclusion, ...]:
    """Return each rule of ``exclude`` that leaves rows out, with how many it leaves out."""
    counts: dict[Exclude, int] = {}
    for block in config.blocks:
        for case in expand(block, device) if block.exclude else ():
            for name, pass_ in itertools.product(block.implementations, block.passes):
                kept, rule = judge(block, case, name, pass_)
                if kept and rule is not None:
                    counts[rule] = counts.get(rule, 0) + 1
    return tuple(Exclusion(str(rule), rows, rule.reason) for rule, rows in counts.items())
