"""Where files of this user are kept: where a variable names, or where the platform has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from losscli.errors import UsageError

CACHE_VARIABLE = "LOSSCLI_CACHE_DIR"
_NAME = "losscli"


def cache_directory(what: str) -> Path:
    """Return the cache of this user; see :func:`user_directory`."""
    return user_directory("cache", CACHE_VARIABLE, what)


def user_directory(kind: Literal["cache", "data"], variable: str, what: str) -> Path:
    """Return a directory of this user: the variable's, or losscli's own in ``$XDG_..._HOME``.

    Args:
        kind: which of the platform's directories it is without the variable.
        variable: an environment variable that names another.
        what: what is kept there, for the message.

    Raises:
        UsageError: it lies in a home directory that is not there.
    """
    import platformdirs

    given = os.environ.get(variable, "")
    default = {"cache": platformdirs.user_cache_path, "data": platformdirs.user_data_path}[kind]
    try:
        return Path(given).expanduser() if given else default(_NAME)
    except RuntimeError:
        whose = f"{variable} is '{given}', but" if given else f"to keep {what} in,"
        raise UsageError(
            f"{whose} there is no such home directory. Name a directory in {variable}."
        ) from None
