"""`losscli --version`: losscli, torch, the compiler and the cache, without importing torch."""

import re
from importlib.machinery import PathFinder
from pathlib import Path

from losscli import __version__
from losscli.errors import UsageError
from losscli.files.directories import cache_directory
from losscli.machine.description import commit, compiler


def describe() -> str:
    """Return a line for each of them."""
    revision = commit()
    own = f"losscli {__version__}{f' (commit {revision})' if revision else ''}"
    return f"{own}\ntorch {_torch()}\ncompiler {compiler() or 'not found'}\ncache {_cache()}"


def _torch() -> str:
    try:
        spec = PathFinder.find_spec("torch")
        if spec is None or spec.origin is None:
            return "not installed"
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except (ImportError, OSError, ValueError) as error:
        return f"not readable ({type(error).__name__}); `losscli doctor` says more"
    found = dict(re.findall(r"^(__version__|cuda)\b[^=]*= *['\"]([^'\"]+)['\"]", text, re.M))
    cuda = found.get("cuda")
    return f"{found.get('__version__', 'of unknown version')}{f', CUDA {cuda}' if cuda else ''}"


def _cache() -> str:
    try:
        return str(cache_directory("kernels"))
    except UsageError as error:
        return f"nowhere: {error}"
