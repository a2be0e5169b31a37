"""Every kernel test runs on the CPU, and with `-m gpu` on a GPU."""

from __future__ import annotations

import pytest

from losscli.operators import loading


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Build the kernels once, if they are not in the cache."""
    loading.load()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)
