"""Linux system calls by name, which the C library lacks or whose errors it hides."""

import ctypes
import errno
import os
import platform
from functools import cache

_TABLE = """
acct 163 89, add_key 248 217, adjtimex 159 171, bpf 321 280, capset 126 91, chroot 161 51,
clock_adjtime 305 266, clock_settime 227 112, clone 56 220, clone3 435 435, delete_module 176 106,
fanotify_init 300 262, finit_module 313 273, fsconfig 431 431, fsmount 432 432, fsopen 430 430,
fspick 433 433, init_module 175 105, io_uring_enter 426 426, io_uring_register 427 427,
io_uring_setup 425 425, kcmp 312 272, kexec_file_load 320 294, kexec_load 246 104, keyctl 250 219,
landlock_add_rule 445 445, landlock_create_ruleset 444 444, landlock_restrict_self 446 446,
memfd_create 319 279, memfd_secret 447 447, mount 165 40, mount_setattr 442 442, move_mount 429 429,
mq_open 240 180, msgget 68 186, name_to_handle_at 303 264, open_by_handle_at 304 265,
open_tree 428 428, open_tree_attr 467 467, perf_event_open 298 241, pidfd_getfd 438 438,
pivot_root 155 41, prctl 157 167, process_madvise 440 440, process_vm_readv 310 270,
process_vm_writev 311 271, ptrace 101 117, quotactl 179 60, quotactl_fd 443 443, reboot 169 142,
request_key 249 218, seccomp 317 277, semget 64 190, sethostname 170 161, setdomainname 171 162,
setns 308 268, settimeofday 164 170, shmget 29 194, socket 41 198, swapoff 168 225, swapon 167 224,
syslog 103 116, umount2 166 39, unshare 272 97, userfaultfd 323 282
"""
"""System calls and their numbers on x86-64 and aarch64; newer ones agree everywhere."""
NUMBERS: dict[str, tuple[int, int]] = {
    name: (int(of_x86), int(of_arm)) for name, of_x86, of_arm in map(str.split, _TABLE.split(","))
}
MACHINES = ("x86_64", "aarch64")


def machine() -> str:
    """Return the machine, one of ``MACHINES``, or an empty string."""
    found = platform.machine()
    return found if found in MACHINES else ""


def number(name: str) -> int:
    """Return the number of a system call on this machine; OSError if it is unknown."""
    if len({*NUMBERS[name]}) == 1:
        return NUMBERS[name][0]
    if not machine():
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), name)
    return NUMBERS[name][MACHINES.index(machine())]


def call(name: str, *arguments: int | bytes | None) -> int:
    """Make a system call, by the C library if its number is unknown; OSError if it fails."""
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    function = None if machine() else getattr(_libc(), name, None)
    if function is None:
        function, given = _libc().syscall, [ctypes.c_long(number(name)), *given]
    found: int = function(*given)
    if found < 0:
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed), name)
    return found


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
