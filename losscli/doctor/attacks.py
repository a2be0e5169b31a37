"""Attacks that a hostile file could try; a worker runs this source, without losscli."""

import ctypes
import errno
import json
import mmap
import os
import re
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

Scene = Mapping[str, Any]
_NEW_USERS, _PTRACE_SEIZE, _PRIVATE_KEYS, _USER_MODE = 0x10000000, 0x4206, -4, 1
_PAUSE_SECONDS = 5
_BLOCK = 2**24
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)


def _find_variable(scene: Scene) -> str:
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


def _list_processes(scene: Scene) -> str:
    with open(f"/proc/{scene['victim']}/cmdline") as file:
        return "its command line" if scene["name"] in file.read() else ""


def _kill_process(scene: Scene) -> None:
    os.kill(scene["victim"], signal.SIGKILL)


def _enter_memory(scene: Scene) -> str:
    try:
        with open(f"/proc/{scene['victim']}/mem", "rb"):
            return "its memory is open"
    except OSError:
        _call(scene, "ptrace", _PTRACE_SEIZE, scene["victim"], 0, 0)
        return "it is its debugger"


def _send_by_udp(scene: Scene) -> None:
    """Send to a program, which reports what arrived."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hello", ("127.0.0.1", scene["udp"]))


def _leave_files(scene: Scene) -> None:
    """Leave files for the next worker; the judge checks afterwards."""
    _made(_write, scene["lasting"])


def _change_attributes(scene: Scene) -> str:
    path = f"{scene['folder']}/file"
    changes = {
        "mode": lambda: os.chmod(path, 0o600),
        "owner": lambda: os.chown(path, os.getuid(), os.getgid()),
        "times": lambda: os.utime(path, (0, 0)),
        "attributes": lambda: os.setxattr(path, "user.doctor", b"1"),
    }
    return _made(lambda name: changes[name](), changes)


def _hold_capabilities(scene: Scene) -> str:
    with open("/proc/self/status") as file:
        known = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    held = [name for name in ("CapPrm", "CapEff", "CapInh", "CapAmb") if int(known[name], 16)]
    return ", ".join(held + ([] if known["NoNewPrivs"] == "1" else ["no_new_privs is unset"]))


def _rename_host(scene: Scene) -> str:
    socket.sethostname(socket.gethostname())
    return "it has the name that was given"


def _make_namespace(scene: Scene) -> str:
    if (child := os.fork()) == 0:
        try:
            _call(scene, "unshare", _NEW_USERS)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
    if refused := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError(refused, os.strerror(refused))
    return "it is root there"


def _reach_kernel(scene: Scene) -> str:
    """Make dangerous system calls; any error other than a refusal counts as reached."""
    block = ctypes.create_string_buffer(256)
    calls = {
        "keyctl": (0, _PRIVATE_KEYS, 1),
        "userfaultfd": (_USER_MODE,),
        "io_uring_setup": (1, ctypes.addressof(block)),
        "bpf": (0, ctypes.addressof(block), len(block)),
    }

    def call(name: str) -> None:
        try:
            _call(scene, name, *calls[name])
        except OSError as error:
            if error.errno in _REFUSED:
                raise

    return _made(call, calls)


def _open_many_files(scene: Scene) -> str:
    count = scene["open files"] + 1
    with ExitStack() as opened:
        for _ in range(count):
            opened.callback(os.close, os.dup(0))
    return f"{count} files"


def _make_large_file(scene: Scene) -> str:
    with open("large", "wb") as file:
        file.truncate(scene["memory"] + 1)
    os.remove("large")
    return "the file is there"


def _reserve_memory(scene: Scene) -> str:
    mmap.mmap(-1, scene["memory"] + 1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    return "it is there"


def _fill_memory(scene: Scene) -> str:
    """Exceed the total memory limit in children that are each below it."""
    part = scene["memory"] // 4
    reading, writing = os.pipe()
    for _ in range(8):
        if os.fork() == 0:
            try:
                taken = b"x" * part
                os.write(writing, taken[:1])
                signal.sigtimedwait({signal.SIGTERM}, _PAUSE_SECONDS)
            finally:
                os._exit(0)
    os.close(writing)
    filled = 0
    while os.read(reading, 1):
        filled += 1
    if filled * part <= scene["memory"]:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    return f"{filled} times a quarter of what it may take"


def _start_processes(scene: Scene) -> str:
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


def _keep_descriptors(scene: Scene) -> str:
    """Look for open files besides three streams, the channel, operands and results."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the folder's own, which is closed by now
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return "" if len(found) <= 6 else ", ".join(sorted(found))


def _call(scene: Scene, name: str, *arguments: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_long(each) for each in (scene["numbers"][name], *arguments)]
    found: int = libc.syscall(*given)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def _connect(address: str | tuple[str, int]) -> str:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as end:
        end.settimeout(1)
        end.connect(address)
    return "it answers"


def _write(path: str) -> str:
    with open(path, "ab") as file:
        file.write(b"x")
    return path


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return path if file.read(1) else ""


def _open(flags: int, *paths: str) -> str:
    return _made(lambda path: os.close(os.open(path, flags)), paths)


def _made(attempt: Callable[[str], object], names: Iterable[str]) -> str:
    made, refusals = [], []
    for name in names:
        try:
            attempt(name)
            made.append(name)
        except OSError as error:
            refusals.append(error)
    if refusals and not made:
        raise refusals[0]
    return ", ".join(made)


def _at(attempt: Callable[[str], str], place: str) -> Callable[[Scene], str]:
    return lambda scene: attempt(place.format(**scene))


class Attack(NamedTuple):
    """An attack on one part of the isolation."""

    part: str
    tries: str
    attempt: Callable[[Scene], str | None]
    """Returns what it reached; an empty string, None or an exception means nothing."""
    outcome: str = ""
    """How to find the outcome if the attempt cannot: ``victim_ended``, ``received`` or ``left``."""
    alone: bool = False
    """Whether the attempt may end its worker."""
    on_cuda: bool = True
    """Whether the wall must hold on a GPU too."""


ATTACKS = (
    Attack("environment", "find a variable of the judge in memory", _find_variable),
    Attack("environment", "find files that the judge has open", _keep_descriptors),
    Attack("processes", "see another process", _list_processes),
    Attack("signals", "read the environment of the judge", _at(_read, "/proc/{judge}/environ")),
    Attack("signals", "enter the memory of another process", _enter_memory),
    Attack("signals", "end another process", _kill_process, "victim_ended"),
    Attack("network", "connect by TCP", lambda scene: _connect(("127.0.0.1", scene["tcp"]))),
    Attack("network", "send by UDP", _send_by_udp, "received"),
    Attack("sockets", "connect to a socket in /tmp", _at(_connect, "{temporary}/socket")),
    Attack(
        "sockets", "connect to a socket elsewhere", _at(_connect, "{folder}/socket"), on_cuda=False
    ),
    Attack("sockets", "connect to an abstract socket", _at(_connect, "\0{name}")),
    Attack(
        *("shared memory", "attach System V shared memory"),
        lambda scene: f"segment {_call(scene, 'shmget', scene['segment'], 0, 0)}",
    ),
    Attack("shared memory", "read a file of /dev/shm", _at(_read, "/dev/shm/{name}")),
    Attack(
        *("/proc", "change kernel settings"),
        lambda scene: _open(os.O_WRONLY, "/proc/sys/vm/swappiness", "/proc/sysrq-trigger"),
    ),
    Attack("temporary files", "read a file in /tmp", _at(_read, "{temporary}/file")),
    Attack("temporary files", "leave a file for the next worker", _leave_files, "left"),
    Attack("files", "change a file of the user", _at(_write, "{folder}/file")),
    Attack("files", "make a file in a folder of the user", _at(_write, "{folder}/made")),
    Attack("attributes", "change mode, owner or times of a file", _change_attributes),
    Attack("devices", "make a file in /dev", _at(_write, "/dev/{name}")),
    Attack(
        *("devices", "open a device"),
        lambda scene: _open(os.O_RDONLY | os.O_NONBLOCK, *scene["devices"]),
    ),
    Attack("capabilities", "hold a capability", _hold_capabilities),
    Attack("capabilities", "rename the host", _rename_host),
    Attack("system calls", "make a namespace", _make_namespace),
    Attack("system calls", "make privileged system calls", _reach_kernel),
    Attack("cache", "open the judges' lock", lambda scene: _open(os.O_RDONLY, scene["lock"])),
    Attack("cache", "write into the cache", _at(_write, "{cache}/{name}")),
    Attack("open files", "open many files", _open_many_files),
    Attack("file sizes", "make a large file", _make_large_file),
    Attack("memory", "reserve much memory", _reserve_memory, on_cuda=False),
    Attack("memory", "fill memory in several processes", _fill_memory, alone=True),
    Attack("number of processes", "start many processes", _start_processes, alone=True),
)


def run(tries: Sequence[str], scene: Scene) -> None:
    """Try the named attacks; print one line of JSON for each."""
    for attack in ATTACKS:
        if attack.tries in tries:
            try:
                line = {"got": attack.attempt(scene) or ""}
            except Exception as error:
                refused = error.strerror if isinstance(error, OSError) else None
                line = {"got": "", "refused": refused or type(error).__name__}
            print(json.dumps({"attack": attack.tries, **line}), flush=True)
