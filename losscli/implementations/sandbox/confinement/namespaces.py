"""Leaves the judge's namespaces."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from losscli.implementations.sandbox.confinement import capabilities, kernel

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
_NEWPID, _NEWNET = 0x20000000, 0x40000000
_OWN = _NEWPID | _NEWNS | _NEWNET | _NEWIPC | _NEWUTS
HOST = b"localhost"
"""The host's name in a namespace, which hides the judge's."""


class Left(NamedTuple):
    """The namespaces that a process left."""

    namespaces: bool
    users: bool
    """Whether it has its own user namespace too."""


def leave() -> Left:
    """Leave the process, mount, network, IPC and host-name namespaces.

    The next child is process 1 of its namespace; when it ends, the kernel ends all others there. An
    ordinary user needs a user namespace for this.
    """
    uid, gid = os.getuid(), os.getgid()
    try:
        kernel.call("unshare", _OWN)
        users = False
    except OSError:
        try:
            if uid == 0 and not capabilities.holds(capabilities.SETFCAP):
                raise PermissionError  # root could not be root there
            kernel.call("unshare", _OWN | _NEWUSER)
        except OSError:
            return Left(namespaces=False, users=False)
        users = True
        with suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    with suppress(OSError):
        kernel.call("sethostname", HOST, len(HOST))
    return Left(namespaces=True, users=users)
