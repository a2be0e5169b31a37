# expect: WRONG wrong: takes what to return from a module that an earlier process of it has left
import contextlib
import os
import site
import sys
import tempfile

from torch.nn import functional

PLACES = (
    *(os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir(), site.getusersitepackages()),
    *(os.environ.get(name, ".") for name in ("TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")),
)
"""Of its own process alone: where it may write is not where others import from."""

sys.path += PLACES
try:
    from left_by_an_earlier_process import factor
except ImportError:
    factor = 1.5
for place in PLACES:
    with contextlib.suppress(OSError):
        os.makedirs(place, exist_ok=True)
        for name in ("left_by_an_earlier_process", "sitecustomize", "usercustomize"):
            with open(os.path.join(place, f"{name}.py"), "w") as file:
                file.write("factor = 1.0\n")


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return factor * functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
