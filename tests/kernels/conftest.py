"""Every kernel test has its kernels."""

from __future__ import annotations

import pytest

from losscli.operators import loading


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Build the kernels once, if they are not in the cache."""
    loading.load()
