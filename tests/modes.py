"""Runs a program as other machines and users do: ``python -m tests.modes MODE PROGRAM...``."""

import errno
import os
import socket
import sys
from contextlib import suppress

from losscli.implementations.sandbox.confinement import kernel, seccomp
from losscli.implementations.sandbox.confinement.namespaces import SETFCAP
from losscli.implementations.sandbox.confinement.seccomp import Refused

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
EVERY_FAMILY = range(socket.AF_VSOCK + 1)
NAMESPACES = Refused("unshare setns mount umount2")  # as Docker's usual filter
NEWER_CALLS = Refused(  # as a kernel of 2020
    "landlock_create_ruleset landlock_add_rule landlock_restrict_self mount_setattr", errno.ENOSYS
)
AS_IT_IS, CONTAINER = "as it is", "container"
MODES: dict[str, tuple[Refused, ...] | None] = {
    AS_IT_IS: None,
    "user": (),
    "older kernel": (NEWER_CALLS,),
    CONTAINER: (NAMESPACES,),
}
"""What the kernel refuses in each mode.

In all but the first a program has no capability but the one that root needs to make a user
namespace, which a user can make without.
"""


def enter(mode: str) -> None:
    refused = MODES[mode]
    if refused is None:
        return
    for capability in range(64):
        if capability != SETFCAP:
            with suppress(OSError):
                kernel.call("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
    kernel.call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if refused:
        seccomp.refuse(seccomp.program(refused, EVERY_FAMILY, options=()))


if __name__ == "__main__":
    enter(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])
