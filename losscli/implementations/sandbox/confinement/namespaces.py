"""Leaves the judge's namespaces, and drops Linux capabilities."""

import os
import re
import struct
from contextlib import suppress
from pathlib import Path

from losscli.implementations.sandbox.confinement import kernel

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
_NEWPID, _NEWNET = 0x20000000, 0x40000000
_OWN = _NEWPID | _NEWNS | _NEWNET | _NEWIPC | _NEWUTS
HOST = b"localhost"
"""The host's name in a namespace, which hides the judge's."""
_CAPBSET_DROP, _SET_NO_NEW_PRIVS, _AMBIENT, _AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_VERSION_3 = 0x20080522
SETFCAP = 31
"""What root needs to be root of a user namespace as well."""


def leave() -> tuple[bool, bool]:
    """Leave the process, mount, network, IPC and host-name namespaces, if the kernel permits.

    Return whether it did, and whether with a new user namespace, as ordinary users need. The next
    child is process 1 of its namespace; when it ends, the kernel ends all others there.
    """
    uid, gid = os.getuid(), os.getgid()
    try:
        kernel.call("unshare", _OWN)
        users = False
    except OSError:
        try:
            if uid == 0 and not _holds_capability(SETFCAP):
                raise PermissionError  # root could not be root there
            kernel.call("unshare", _OWN | _NEWUSER)
        except OSError:
            return False, False
        users = True
        with suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    with suppress(OSError):
        kernel.call("sethostname", HOST, len(HOST))
    return True, users


def _holds_capability(capability: int) -> bool:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapEff:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return bool(found and int(found[1], 16) >> capability & 1)


def drop_capabilities() -> None:
    """Drop all capabilities of this process and its children; OSError if one remains."""
    kernel.call("prctl", _SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    kernel.call("prctl", _AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    with suppress(OSError):  # past the last; or not allowed, of a user who has none to pass on
        for capability in range(64):  # more than any kernel has
            kernel.call("prctl", _CAPBSET_DROP, capability, 0, 0, 0)
    kernel.call("capset", struct.pack("=Ii", _VERSION_3, 0), struct.pack("=6I", *[0] * 6))
