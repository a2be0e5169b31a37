"""Every kernel test has its kernels."""

import pytest

from losscli.operators import loading


@pytest.fixture(scope="session", autouse=True)
def _kernels():
    """Build the kernels once, if they are not in the cache."""
    loading.load()
