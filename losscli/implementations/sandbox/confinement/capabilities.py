"""Drops the Linux capabilities of a process."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from losscli.implementations.sandbox.confinement import kernel

_CAPBSET_DROP, _SET_NO_NEW_PRIVS, _AMBIENT, _AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_VERSION_3 = 0x20080522
_MOST = 64
"""More than any kernel has."""
SETFCAP = 31
"""What root needs to be root of a user namespace as well."""


def holds(capability: int) -> bool:
    """Tell whether this process has a capability."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapEff:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return bool(found and int(found[1], 16) >> capability & 1)


def drop() -> None:
    """Drop all capabilities of this process and its children; OSError if the kernel keeps one."""
    kernel.call("prctl", _SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    kernel.call("prctl", _AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    try:
        for capability in range(_MOST):
            kernel.call("prctl", _CAPBSET_DROP, capability, 0, 0, 0)
    except OSError:  # past the last; or not allowed, of a user who has none to pass on
        pass
    kernel.call("capset", struct.pack("=Ii", _VERSION_3, 0), struct.pack("=6I", *[0] * 6))
