"""What ranks check themselves: collectives, special values, errors, groups."""

from __future__ import annotations

import pytest

from .checks import CHECKS
from .conftest import Found


@pytest.mark.parametrize(
    ("count", "check"),
    [(count, check.__name__) for count, checks in CHECKS.items() for check in checks],
)
def test_all_ranks_pass(count: int, check: str, found: Found) -> None:
    for rank, of_rank in enumerate(found[count]):
        assert check in of_rank["checks"], f"rank {rank}: {of_rank.get('raised')}"
