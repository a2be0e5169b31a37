"""Every kernel test has its kernels."""

import pytest

import losscli


@pytest.fixture(scope="session", autouse=True)
def _kernels():
    """Build the kernels once, if they are not in the cache."""
    losscli.load()
