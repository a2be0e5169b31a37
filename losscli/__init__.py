"""Build, verify and time loss kernels against PyTorch."""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import ``losscli.judge``, which is a function as well, or ``patch`` when first asked for."""
    from importlib import import_module

    if name in ("patch", "patched", "unpatch"):
        return getattr(import_module("losscli.patching"), name)
    if name not in ("judge", "judge_many"):
        raise AttributeError(f"module 'losscli' has no attribute '{name}'")
    judge = import_module("losscli.judge")
    return judge if name == "judge" else judge.judge_many


def load(device: str | None = None) -> None:
    """Make losscli's operators usable, as a program saved by ``torch.export`` needs them.

    ``import losscli.functional`` is enough as well: the first call of a loss then loads its
    libraries. With a device this function loads the kernels of all losses now, and builds missing
    ones.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UsageError: the device is none of these.
        UnfitError: a library has to be built and there is no compiler, or nowhere to write.
        BuildError: a compiler failed, or a finished library does not load.
    """
    import losscli.functional  # noqa: F401 - defines the operators
    from losscli.operators import loading

    loading.load(device)
