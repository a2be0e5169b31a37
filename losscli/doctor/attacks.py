"""Attacks that a hostile file could try, one function each.

The source runs in a worker and so imports nothing from losscli. A function returns what it reached;
an empty string or an exception means nothing. For ``scene`` see
:class:`losscli.doctor.isolation.Scene`.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import re
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Scene = Mapping[str, Any]
CALLS = ("ptrace", "shmget", "unshare", "keyctl", "userfaultfd", "io_uring_setup", "bpf")
"""The attempted system calls, whose numbers are in ``scene``."""
_NEW_USERS, _PTRACE_SEIZE = 0x10000000, 0x4206
_PRIVATE_KEYS, _USER_MODE = -4, 1
_PAUSE_SECONDS = 5
_BLOCK = 2**24
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)


def find_variable(scene: Scene) -> str:
    """Search this process's writable memory for a variable named in two halves."""
    first, second = (re.escape(half.encode()) for half in scene["secret"])
    wanted = re.compile(first + b"(?=" + second + b")")
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps.readlines():
            place, rights, *_ = line.split()
            start, end = (int(each, 16) for each in place.split("-"))
            if not rights.startswith("rw"):
                continue
            for at in range(start, end, _BLOCK):
                memory.seek(at)
                try:
                    data = memory.read(min(_BLOCK + 256, end - at))
                except OSError:
                    break
                if wanted.search(data):
                    return f"in the memory at {at:x}"
    return ""


def read_judge(scene: Scene) -> str:
    """Read the environment of the judge."""
    return _first_read(f"/proc/{scene['judge']}/environ")


def list_processes(scene: Scene) -> str:
    """Look for a process in /proc."""
    with open(f"/proc/{scene['victim']}/cmdline") as file:
        return "its command line" if scene["name"] in file.read() else ""


def kill_process(scene: Scene) -> str:
    """Kill a process; the judge checks afterwards."""
    os.kill(scene["victim"], signal.SIGKILL)
    return ""


def enter_memory(scene: Scene) -> str:
    """Open a process's memory, or become its debugger."""
    try:
        with open(f"/proc/{scene['victim']}/mem", "rb"):
            return "its memory is open"
    except OSError:
        _call(scene, "ptrace", _PTRACE_SEIZE, scene["victim"], 0, 0)
        return "it is its debugger"


def connect_by_tcp(scene: Scene) -> str:
    """Connect to a listening program."""
    with socket.create_connection(("127.0.0.1", scene["tcp"]), timeout=1):
        return "it answers"


def send_by_udp(scene: Scene) -> str:
    """Send to a program, which reports what arrived."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hello", ("127.0.0.1", scene["udp"]))
    return ""


def connect_to_hidden_socket(scene: Scene) -> str:
    """Connect to a socket in a folder for temporary files."""
    return _connect(scene["temporary"] + "/socket")


def connect_to_socket_beside(scene: Scene) -> str:
    """Connect to a socket in a folder that the file may read."""
    return _connect(scene["folder"] + "/socket")


def connect_to_abstract_socket(scene: Scene) -> str:
    """Connect to an abstract socket, which has no file."""
    return _connect("\0" + scene["name"])


def attach_memory(scene: Scene) -> str:
    """Attach another program's System V memory."""
    found = _call(scene, "shmget", scene["segment"], 0, 0)
    return f"segment {found}"


def read_shared_file(scene: Scene) -> str:
    """Read a file of shared memory."""
    return _first_read(f"/dev/shm/{scene['name']}")


def set_kernel(scene: Scene) -> str:
    """Open kernel settings for writing, without changing them."""
    return _first_opened(os.O_WRONLY, "/proc/sys/vm/swappiness", "/proc/sysrq-trigger")


def read_temporary_file(scene: Scene) -> str:
    """Read another program's temporary file."""
    return _first_read(f"{scene['temporary']}/file")


def leave_files(scene: Scene) -> str:
    """Leave files for the next worker; the judge checks afterwards."""
    refusals = []
    for path in scene["lasting"]:
        try:
            _write(path)
        except OSError as error:
            refusals.append(error)
    if len(refusals) == len(scene["lasting"]):
        raise refusals[0]
    return ""


def change_file(scene: Scene) -> str:
    """Change a file of the user."""
    return _write(f"{scene['folder']}/file")


def make_file(scene: Scene) -> str:
    """Make a file in a folder of the user."""
    return _write(f"{scene['folder']}/made")


def change_attributes(scene: Scene) -> str:
    """Change a file's mode, owner, times and extended attributes."""
    path = f"{scene['folder']}/file"
    changes: tuple[Callable[[], None], ...] = (
        lambda: os.chmod(path, 0o600),
        lambda: os.chown(path, os.getuid(), os.getgid()),
        lambda: os.utime(path, (0, 0)),
        lambda: os.setxattr(path, "user.doctor", b"1"),
    )
    refusals = []
    for change in changes:
        try:
            change()
        except OSError as error:
            refusals.append(error)
    if len(refusals) < len(changes):
        return f"{len(changes) - len(refusals)} of {len(changes)} changes"
    raise refusals[0]


def make_device_file(scene: Scene) -> str:
    """Create a file in /dev, which outlives a worker."""
    return _write(f"/dev/{scene['name']}")


def open_devices(scene: Scene) -> str:
    """Open devices that no calculation needs."""
    return _first_opened(os.O_RDONLY | os.O_NONBLOCK, *scene["devices"])


def hold_capabilities(scene: Scene) -> str:
    """Look for a capability, or a way to gain one."""
    with open("/proc/self/status") as file:
        known = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    held = [name for name in ("CapPrm", "CapEff", "CapInh", "CapAmb") if int(known[name], 16)]
    return ", ".join(held + ([] if known["NoNewPrivs"] == "1" else ["no_new_privs is unset"]))


def rename_host(scene: Scene) -> str:
    """Give the host another name."""
    socket.sethostname(socket.gethostname())
    return "it has the name that was given"


def make_namespace(scene: Scene) -> str:
    """Become root of a new user namespace."""
    child = os.fork()
    if child == 0:
        try:
            _call(scene, "unshare", _NEW_USERS)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
    refused = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if refused:
        raise OSError(refused, os.strerror(refused))
    return "it is root there"


def reach_kernel(scene: Scene) -> str:
    """Make dangerous system calls."""
    calls: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("keyctl", (0, _PRIVATE_KEYS, 1)),
        ("userfaultfd", (_USER_MODE,)),
        ("io_uring_setup", (1, ctypes.addressof(ctypes.create_string_buffer(256)))),
        ("bpf", (0, ctypes.addressof(ctypes.create_string_buffer(256)), 256)),
    )
    refusals: list[OSError] = []
    made: list[str] = []
    for name, arguments in calls:
        try:
            _call(scene, name, *arguments)
            made.append(name)
        except OSError as error:
            if error.errno in _REFUSED:
                refusals.append(error)
            else:
                made.append(name)
    if made:
        return ", ".join(made)
    raise refusals[0]


def open_lock(scene: Scene) -> str:
    """Open a lock of judges; whoever opens it can keep it."""
    return _first_opened(os.O_RDONLY, scene["lock"])


def write_cache(scene: Scene) -> str:
    """Leave a library in the cache."""
    return _write(os.path.join(scene["cache"], scene["name"]))


def open_many_files(scene: Scene) -> str:
    """Open more files than any kernel needs."""
    opened = []
    try:
        for _ in range(scene["open files"] + 1):
            opened.append(os.dup(0))
    finally:
        for each in opened:
            os.close(each)
    return f"{len(opened)} files"


def make_large_file(scene: Scene) -> str:
    """Create a file larger than the memory limit."""
    with open("large", "wb") as file:
        file.truncate(scene["memory"] + 1)
    os.remove("large")
    return "the file is there"


def reserve_memory(scene: Scene) -> str:
    """Reserve more memory than the limit."""
    mmap.mmap(-1, scene["memory"] + 1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    return "it is there"


def fill_memory(scene: Scene) -> str:
    """Exceed the total memory limit in children that are each below it."""
    part = scene["memory"] // 4
    reading, writing = os.pipe()
    children = []
    for _ in range(8):
        if (child := os.fork()) == 0:
            try:
                taken = b"x" * part
                os.write(writing, taken[:1])
                signal.sigtimedwait({signal.SIGTERM}, _PAUSE_SECONDS)
            finally:
                os._exit(0)
        children.append(child)
    os.close(writing)
    filled = 0
    while os.read(reading, 1):
        filled += 1
    if filled * part <= scene["memory"]:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    return f"{filled} times a quarter of what it may take"


def start_processes(scene: Scene) -> str:
    """Start more processes than the limit."""
    children: list[int] = []
    try:
        while len(children) <= scene["processes"]:
            if (child := os.fork()) == 0:
                try:
                    signal.sigtimedwait({signal.SIGTERM}, _PAUSE_SECONDS)
                finally:
                    os._exit(0)
            children.append(child)
        signal.sigtimedwait({signal.SIGTERM}, _PAUSE_SECONDS)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return f"{len(children)} processes"


def keep_descriptors(scene: Scene) -> str:
    """Look for open files besides three streams, the channel, operands and results."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:  # that of the folder, which is closed by now
            continue
    return "" if len(found) <= 6 else ", ".join(sorted(found))


def run(names: Sequence[str], scene: Scene) -> None:
    """Try the named attacks; print one line of JSON for each."""
    for name in names:
        try:
            line = {"attack": name, "got": globals()[name](scene)}
        except Exception as error:
            told = (error.strerror if isinstance(error, OSError) else "") or type(error).__name__
            line = {"attack": name, "got": "", "refused": told}
        print(json.dumps(line), flush=True)


def _call(scene: Scene, name: str, *arguments: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_long(each) for each in (scene["numbers"][name], *arguments)]
    found: int = libc.syscall(*given)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def _connect(address: str) -> str:
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(1)
        end.connect(address)
    return "it answers"


def _write(path: str) -> str:
    with open(path, "ab") as file:
        file.write(b"x")
    return path


def _first_read(*paths: str) -> str:
    def reads(path: str) -> bool:
        with open(path, "rb") as file:
            return bool(file.read(1))

    return _first(reads, paths)


def _first_opened(flags: int, *paths: str) -> str:
    def opens(path: str) -> bool:
        os.close(os.open(path, flags))
        return True

    return _first(opens, paths)


def _first(attempt: Callable[[str], bool], paths: Sequence[str]) -> str:
    """Return the first path for which an attempt succeeds, or raise the first error."""
    refusal: OSError | None = None
    for path in paths:
        try:
            if attempt(path):
                return path
        except OSError as error:
            refusal = refusal or error
    if refusal:
        raise refusal
    return ""
