"""The parameters that a file may have without an argument for them."""

from collections.abc import Sequence
from itertools import combinations, product

from losscli.losses import Spec
from losscli.losses.rows.forms import IGNORE_INDEX

MOST_NUMBERS = 8
NO_FACTOR = (0.0, 1.0, -1.0)
"""Values by which parameters leave a term out, or leave it as it is."""
MOST = 80


def settings(spec: Spec, numbers: Sequence[float]) -> list[dict[str, float]]:
    """Return the parameters that a file with these numbers may have, the defaults first."""
    values = dict.fromkeys((*numbers[:MOST_NUMBERS], *NO_FACTOR))
    options = [
        [(each.name, n) for n in values if n != each.default and not each.check(n)]
        for each in spec.parameters
        if each != IGNORE_INDEX  # the operands depend on it
    ]
    singles = [dict([one]) for own in options for one in own]
    pairs = [dict(pair) for one, other in combinations(options, 2) for pair in product(one, other)]
    return [{}, *singles, *pairs][:MOST]
