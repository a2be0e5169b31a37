"""Judge, verify and time loss kernels against PyTorch."""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("patch", "patched", "unpatch"):
        return getattr(import_module("losscli.patching"), name)
    if name not in ("judge", "judge_many"):
        raise AttributeError(f"module 'losscli' has no attribute '{name}'")
    judge = import_module("losscli.judge")
    return judge if name == "judge" else judge.judge_many


def load(device: str | None = None) -> None:
    """Define losscli's operators, as a program saved by ``torch.export`` needs.

    ``import losscli.functional`` does so too: the first call of a loss then loads its libraries.
    With a device, load the kernels of all losses now, and build missing ones.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UsageError: the device is none of these.
        UnfitError: a build needs a compiler or a place to write.
        BuildError: a compiler failed, or a library does not load.
    """
    import losscli.functional  # noqa: F401 - defines the operators
    from losscli.operators import loading

    loading.load(device)
