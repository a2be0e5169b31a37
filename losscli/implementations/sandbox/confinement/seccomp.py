"""Refuses system calls that are not needed; with CUDA, those of Docker's default filter."""

import ctypes
import errno
import struct
from collections.abc import Iterable
from typing import NamedTuple

from losscli.implementations.sandbox.confinement import kernel


class Refused(NamedTuple):
    """System calls to refuse."""

    names: str
    error: int = errno.EPERM
    on_cuda: bool = True
    """Whether CUDA works without them."""


REFUSED = (
    # The memory and descriptors of other processes.
    Refused("ptrace process_vm_readv process_vm_writev process_madvise kcmp", on_cuda=False),
    Refused("pidfd_getfd", on_cuda=False),
    Refused("add_key keyctl request_key"),  # keys of the kernel belong to no namespace
    Refused("mount umount2 pivot_root chroot move_mount open_tree open_tree_attr"),
    Refused("mount_setattr fsopen fsconfig fsmount fspick"),  # newer ways to mount
    Refused("unshare setns"),  # lead to namespaces in which a process has capabilities again
    Refused("clone3", errno.ENOSYS),  # clone, whose flags a filter cannot see
    Refused("open_by_handle_at name_to_handle_at"),  # open files past their folders
    Refused("bpf perf_event_open userfaultfd"),  # reach far into the kernel
    Refused("io_uring_setup io_uring_enter io_uring_register", errno.ENOSYS),  # call past a filter
    Refused("init_module finit_module delete_module kexec_load kexec_file_load"),
    Refused("reboot swapon swapoff acct quotactl quotactl_fd syslog"),  # are an administrator's
    Refused("settimeofday clock_settime clock_adjtime adjtimex"),
    Refused("sethostname setdomainname fanotify_init"),  # concern all processes
    Refused("memfd_create memfd_secret", errno.ENOSYS, on_cuda=False),  # uncounted memory
)
SHARED_MEMORY = Refused("shmget semget msgget mq_open")
"""Reach memory of other processes; refused if there is no namespace for it."""
NEW_NAMESPACES = 0x7E020000
"""Flags of clone."""

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
"""The first number of x86-64's alternative calls."""
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Operations of a filter: load a word of the call; compare it; end."""
_SET_PDEATHSIG = 1
"""The option of prctl with which a worker could outlive its keeper."""
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Their offsets in the description of a call; an argument's lower half comes first."""
_SET_FILTER, _ALLOW_SPECULATION = 1, 4
_STEP = struct.Struct("=HBBI")
"""An operation, how many steps to skip if true and if false, and its value."""


def program(
    refused: Iterable[Refused], families: Iterable[int], options: Iterable[int] = (_SET_PDEATHSIG,)
) -> bytes:
    """Return a filter that refuses system calls, other socket families, and prctl options."""
    numbers = {kernel.number(name): each.error for each in refused for name in each.names.split()}
    known = [part for family in families for part in _if(_EQUAL, family, _end())]
    unwanted = [part for each in options for part in _if(_EQUAL, each, _end(errno.EPERM))]
    by_argument = {
        "clone": [*_if(_ANY_BIT, NEW_NAMESPACES, _end(errno.EPERM)), *_end()],
        "prctl": [*unwanted, *_end()],
        "socket": [*known, *_end(errno.EAFNOSUPPORT)],
    }
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, _ARCHITECTURES[kernel.machine()], met=1),
        *_end(errno.ENOSYS),
        _step(_LOAD, _NUMBER),
        *_if(_AT_LEAST, _X32, _end(errno.ENOSYS)),
        *(part for number, error in numbers.items() for part in _if(_EQUAL, number, _end(error))),
        *(
            part
            for name, then in by_argument.items()
            for part in _if(_EQUAL, kernel.number(name), [_step(_LOAD, _FIRST_ARGUMENT), *then])
        ),
        *_end(),
    ]
    return b"".join(steps)


def refuse(program: bytes) -> None:
    """Install a filter for this thread and its children; OSError if the kernel refuses."""
    steps = ctypes.create_string_buffer(program, len(program))
    filter = struct.pack("@HP", len(program) // _STEP.size, ctypes.addressof(steps))
    # Older kernels slow down a process with a filter by default.
    for flags in (_ALLOW_SPECULATION, 0):
        try:
            kernel.call("seccomp", _SET_FILTER, flags, filter)
            return
        except OSError as error:
            if error.errno != errno.EINVAL or not flags:
                raise


def _if(operation: int, value: int, then: list[bytes]) -> list[bytes]:
    return [_step(operation, value, unmet=len(then)), *then]


def _end(error: int = 0) -> list[bytes]:
    return [_step(_RETURN, _ERROR | error if error else _ALLOW)]


def _step(operation: int, value: int, met: int = 0, unmet: int = 0) -> bytes:
    return _STEP.pack(operation, met, unmet, value)
