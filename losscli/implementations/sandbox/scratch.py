"""The scratch directories of running judges."""

import atexit
import shutil
from functools import cache
from pathlib import Path

from losscli.errors import UnfitError
from losscli.files.directories import CACHE_VARIABLE, make_private, private_folder
from losscli.processes.lock import claim_folder, remove_unclaimed


def scratch_directory() -> Path:
    """Return the directory for workers' file systems; UnfitError if it cannot be private."""
    return _claimed(private_folder("what candidates write", "scratch"))


@cache
def _claimed(shared: Path) -> Path:
    """Create this process's directory; remove those of ended judges."""
    try:
        make_private(shared)
        remove_unclaimed(shared)
        own = claim_folder(shared)
    except OSError as error:
        mend = f"Name a folder that can be written in {CACHE_VARIABLE}."
        raise UnfitError(f"cannot write {shared}: {error.strerror}. {mend}") from None
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own
