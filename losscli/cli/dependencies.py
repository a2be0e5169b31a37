"""Packages that losscli needs: which are missing, and why an import failed."""

import contextlib
import re
import sys
import traceback
from importlib.util import find_spec
from types import ModuleType

from losscli.errors import UnfitError

TORCH = "torch"
PACKAGES = {
    **{name: name for name in ("click", "msgspec", "ninja", "numpy", "platformdirs", "tabulate")},
    "yaml": "PyYAML",
    TORCH: TORCH,
}
"""pip's name for each module that losscli needs."""


def require() -> None:
    """Raise UnfitError where a package other than torch is missing."""
    if missing := [name for name in PACKAGES if name != TORCH and find_spec(name) is None]:
        raise UnfitError(_missing(*missing))


def trouble(error: BaseException) -> str | None:
    """Return which package an error comes from, and what to do; None for losscli's own."""
    if (name := _package(error)) is None:
        return None
    if name in sys.stdlib_module_names:
        return f"this Python has no module '{name}'. Install a complete Python."
    if isinstance(error, ModuleNotFoundError) and error.name == name != TORCH:
        return _missing(name)
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    if name == TORCH and TORCH not in sys.modules:
        return f"torch cannot be imported: {reason}. `losscli doctor` says more."
    installed, needed = _versions(PACKAGES.get(name, name))
    said = f"{installed} is damaged, or losscli needs another version: {reason}."
    return f"{said} Run `pip install --force-reinstall '{needed}'`."


def _versions(package: str) -> tuple[str, str]:
    """Return a package's installed version, and losscli's requirement: ``msgspec>=0.21``."""
    from importlib import metadata  # which takes long to import

    installed = needed = package
    with contextlib.suppress(metadata.PackageNotFoundError):
        installed = f"{package} {metadata.version(package)}"
        for line in metadata.requires("losscli") or ():
            requirement = line.partition(";")[0].strip()
            if re.match(rf"{re.escape(package)}(?![\w.-])", requirement, re.IGNORECASE):
                return installed, requirement
    return installed, needed


def _missing(*names: str) -> str:
    packages = [PACKAGES.get(name, name) for name in names]
    what = "package is" if len(packages) == 1 else "packages are"
    return f"the {', '.join(packages)} {what} missing. Run `pip install {' '.join(packages)}`."


def _package(error: BaseException) -> str | None:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = _third_party(frame.f_globals.get("__name__", ""))
        if name and frame.f_code.co_name == "<module>" and name not in sys.modules:
            return name  # which is half imported
    if isinstance(error, ImportError) and error.name:
        return _third_party(error.name)
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        return _third_party(error.obj.__name__)
    return None


def _third_party(module: str) -> str | None:
    name = module.partition(".")[0]
    is_standard = name in sys.stdlib_module_names and name in sys.modules
    return None if is_standard or name in ("", "losscli", "__main__") else name
