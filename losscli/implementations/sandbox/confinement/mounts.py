"""The files that a worker sees, in its own mount namespace; see docs/isolation.md."""

import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from glob import glob
from itertools import count
from pathlib import Path
from typing import NamedTuple

from losscli.implementations.sandbox.confinement import kernel

COVERED = ("/tmp", "/var/tmp", "/run", "/var/run")
SCRATCH = "/tmp/work"
"""A worker's file system, on top of /tmp. The name does not reveal losscli."""
DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
OF_CUDA = ("/dev/nvidia*", "/dev/dxg", "/dev/nvmap", "/dev/nvhost*", "/dev/nvgpu*")
"""The devices of NVIDIA's driver, also on Windows and Jetson."""
SCRATCH_BYTES = 4 * 2**30
"""The maximum size of a file system in memory."""
_STREAMS = {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}
_READ_ONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND = 1, 2, 4, 8, 32, 4096
_FILE_WRITABLE = 0o222
_RECURSIVE, _PRIVATE = 0x4000, 1 << 18
_SMALL = _NOSUID | _NODEV | _NOEXEC
_TIMES = {"noatime": 1 << 10, "nodiratime": 1 << 11, "relatime": 1 << 21}
_FLAGS = {"nosuid": _NOSUID, "nodev": _NODEV, "noexec": _NOEXEC, **_TIMES}
_AT_FDCWD, _AT_RECURSIVE, _DETACH = -100, 0x8000, 2


class _Kept(NamedTuple):
    path: str
    place: int
    """A descriptor that finds it when its path is covered."""
    is_folder: bool


def devices(device: str) -> list[str]:
    """Return the paths in /dev that a worker needs."""
    patterns = (*DEVICES, *(() if device == "cpu" else OF_CUDA))
    return [path for pattern in patterns for path in sorted(glob(pattern))]


def mount(
    device: str, bytes: int, needed: Iterable[str], hidden: Iterable[str]
) -> tuple[str, bool, bool] | None:
    """Mount the files that this process and its children see, or return None if not permitted.

    Return the scratch folder, whether all else is read-only, and whether /proc shows only the
    namespace's processes. Two file systems in memory have so many ``bytes`` each. ``needed`` paths
    stay visible inside ``hidden`` and shared folders; OSError if one cannot be restored.
    """
    common = os.path.realpath(os.path.dirname(SCRATCH))
    try:
        _mount("none", "/", flags=_RECURSIVE | _PRIVATE)
        _mount_small(common)
        kernel.call("umount2", os.fsencode(common), _DETACH)
    except OSError:
        return None
    shared = {*map(os.path.realpath, COVERED)}
    covered = sorted({*shared, *map(os.path.realpath, hidden)} - {"/"})
    scratch = ""
    real = {each: os.path.realpath(each) for each in needed}
    read_only = proc = False
    with ExitStack() as closing:
        roots = [_keep(path, closing) for path in _roots(real.values(), covered)]
        nodes = [_keep(path, closing) for path in devices(device)]
        with suppress(OSError):
            _make_read_only()
            read_only = True
        with suppress(OSError):  # in a container parts of /proc may be covered
            _mount_proc(writable=device != "cpu")
            proc = True
        _mount_devices(nodes, bytes)
        for place in filter(os.path.exists, covered):
            if not os.path.isdir(place):
                _mount(DEVICES[0], place, flags=_BIND)
                continue
            _mount_small(place)
            for root in roots:
                if _is_below(root.path, place):
                    _bring_back(root)
            for path, target in real.items():
                if path != target and _is_below(path, place):
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    if not os.path.exists(path):  # with .. it leads to what is there
                        os.symlink(target, path)
            if place == common:
                scratch = _mount_scratch(bytes)
            if place not in shared:  # in /tmp programs expect no error but that of a permission
                _remount_read_only(place, _SMALL)
    return scratch, read_only, proc


def _roots(needed: Iterable[str], covered: list[str]) -> list[str]:
    inside: set[str] = set()
    for path in needed:
        inside |= {path} if any(_is_below(path, place) for place in covered) else set()
        inside |= {*_modules(path)} if path in covered else set()
    found: list[str] = []

    def comes_with(path: str, root: str) -> bool:
        between = (place for place in covered if _is_below(place, root))
        return _is_below(path, root) and not any(_is_below(path, place) for place in between)

    for path in sorted(inside):
        if os.path.exists(path) and not any(comes_with(path, root) for root in found):
            found.append(path)
    return found


def _modules(folder: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py") or os.path.exists(f"{entry.path}/__init__.py"):
                yield entry.path


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.rstrip('/')}/")


def _keep(path: str, closing: ExitStack) -> _Kept:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    closing.callback(os.close, place)
    return _Kept(path, place, os.path.isdir(path))


def _bring_back(kept: _Kept) -> None:
    os.makedirs(os.path.dirname(kept.path), exist_ok=True)
    if kept.is_folder:
        os.makedirs(kept.path, exist_ok=True)
    else:
        Path(kept.path).touch()
    _mount(f"/proc/self/fd/{kept.place}", kept.path, flags=_BIND | _RECURSIVE)


def _mount_devices(nodes: Iterable[_Kept], bytes: int) -> None:
    _mount_small("/dev")
    for node in nodes:
        _bring_back(node)
    for name, end in _STREAMS.items():
        os.symlink(f"/proc/self/fd{end}", f"/dev/{name}")
    os.mkdir("/dev/shm")
    _mount("tmpfs", "/dev/shm", "tmpfs", _NOSUID | _NODEV, f"size={bytes},mode=700")
    _remount_read_only("/dev", _SMALL)


def _mount_scratch(bytes: int) -> str:
    names = (f"{SCRATCH}{number or ''}" for number in count())
    scratch = next(name for name in names if not os.path.lexists(name))
    os.mkdir(scratch)
    _mount("tmpfs", scratch, "tmpfs", _NOSUID | _NODEV, f"size={bytes},mode=700")
    return scratch


def _mount_proc(*, writable: bool) -> None:
    """Mount a /proc of this namespace; CUDA must write to the files of processes."""
    _mount("proc", "/proc", "proc", _SMALL if writable else _SMALL | _READ_ONLY)
    if not writable:
        return
    with os.scandir("/proc") as entries:
        for entry in entries:
            known = entry.stat(follow_symlinks=False).st_mode
            if entry.name.isdigit() or not (stat.S_ISDIR(known) or known & _FILE_WRITABLE):
                continue
            if not stat.S_ISLNK(known):
                _mount(entry.path, entry.path, flags=_BIND | _RECURSIVE)
                _remount_read_only(entry.path, _SMALL)


def _make_read_only() -> None:
    attributes = struct.pack("=4Q", _READ_ONLY | _NOSUID, 0, 0, 0)
    try:
        kernel.call("mount_setattr", _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, len(attributes))
    except OSError:  # an older kernel
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            _, _, _, _, place, options, *_ = line.split(" ")
            path = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place)
            own = sum(_FLAGS.get(option, 0) for option in options.split(","))
            _remount_read_only(path, own | _NOSUID)


def _remount_read_only(place: str, flags: int) -> None:
    _mount("none", place, flags=_REMOUNT | _BIND | _READ_ONLY | flags)


def _mount_small(place: str) -> None:
    _mount("tmpfs", place, "tmpfs", _SMALL, "size=1m,mode=755")


def _mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    encoded = (os.fsencode(each) for each in (source, target, kind))
    kernel.call("mount", *encoded, flags, options.encode())
