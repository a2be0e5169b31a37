"""Test the judge's sandbox: attack it from a worker and check the outcome."""

import ctypes
import inspect
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer, UDPServer, UnixStreamServer
from typing import Any, Final, Literal

from losscli.doctor import attacks
from losscli.doctor.attacks import ATTACKS, Attack
from losscli.errors import UnfitError
from losscli.files.directories import LOCKS, make_private, private_folder
from losscli.files.record import CommandRecord, Record
from losscli.implementations.allowance import Allowance
from losscli.implementations.errors import SandboxError
from losscli.implementations.implementation import Setting
from losscli.implementations.sandbox.confinement import kernel, limits
from losscli.implementations.source import Source
from losscli.processes import how_ended

State = Literal["held", "not held", "not there"]
HELD: Final = "held"
NOT_HELD: Final = "not held"
"""The wall is there, and was passed."""
NOT_THERE: Final = "not there"
"""It was passed because this machine does not permit it."""

MEMORY_BYTES, PROCESSES = 3 * 2**28, 32
SMALL = Allowance(memory_bytes=MEMORY_BYTES, processes=PROCESSES, build_seconds=60.0)
DEVICES = (
    *("kmsg", "console", "mem", "kvm", "fuse", "ptmx", "tty0", "net/tun", "loop0"),
    *("sda", "vda", "xvda", "nvme0n1", "dm-0"),
)
"""Devices that can be opened without effect, unlike a watchdog's."""
_IPC_CREATE, _IPC_REMOVE = 0o3600, 0
"""For a new memory segment of this user only."""


class Tried(Record, frozen=True):
    """The outcome of an attack."""

    part: str
    tries: str
    state: State
    how: str


class Siege(CommandRecord, frozen=True, kw_only=True):
    """The outcomes of all attacks on one device."""

    kind: Literal["isolation"] = "isolation"
    device: str
    user: str
    reached: Sequence[str]
    """The parts in this machine's verdicts."""
    results: Sequence[Tried]

    def count(self, state: State) -> int:
        """Return the number of attacks with an outcome."""
        return sum(each.state == state for each in self.results)


class Scene:
    """The targets of attacks."""

    def __init__(self, made: ExitStack) -> None:
        keep, name = made.enter_context, f"doctor-{secrets.token_hex(8)}"
        secret = (f"{name}-first", "-second")
        os.environ[variable := "DOCTORS_SECRET"] = "".join(secret)
        made.callback(os.environ.pop, variable)
        self.folder, temporary = (
            keep(tempfile.TemporaryDirectory(prefix="losscli-doctor-")) for _ in range(2)
        )
        for folder in (self.folder, temporary):
            Path(folder, "file").write_text("of the user")
            keep(UnixStreamServer(f"{folder}/socket", BaseRequestHandler))
        keep(UnixStreamServer(f"\0{name}", BaseRequestHandler))
        tcp = keep(TCPServer(("127.0.0.1", 0), BaseRequestHandler))
        self.udp = keep(UDPServer(("127.0.0.1", 0), BaseRequestHandler))
        self.udp.socket.setblocking(False)
        program = [sys.executable, "-c", "input()", name]
        self.victim = keep(subprocess.Popen(program, stdin=subprocess.PIPE))
        made.callback(self.victim.kill)
        self.lasting = [f"/dev/shm/{name}-left", f"/tmp/{name}-left", f"/var/tmp/{name}-left"]
        locks = private_folder("locks", LOCKS).absolute()
        with suppress(OSError):
            make_private(locks)
        lock, shared = locks / name, Path(f"/dev/shm/{name}")
        for path in (lock, shared):
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("of the judge")
        written = [lock, shared, locks.parent / name, Path("/dev", name), *map(Path, self.lasting)]
        for path in written:
            made.callback(path.unlink, missing_ok=True)
        key, libc = secrets.randbelow(2**31 - 1) + 1, ctypes.CDLL(None)
        made.callback(libc.shmctl, libc.shmget(key, 4096, _IPC_CREATE), _IPC_REMOVE, None)
        self.facts = {
            "name": name,
            "secret": secret,
            "judge": os.getpid(),
            "victim": self.victim.pid,
            "tcp": tcp.server_address[1],
            "udp": self.udp.server_address[1],
            "folder": self.folder,
            "temporary": temporary,
            "segment": key,
            "lasting": self.lasting,
            "lock": str(lock),
            "cache": str(locks.parent),
            "devices": [node for name in DEVICES if os.path.exists(node := f"/dev/{name}")],
            "numbers": {name: kernel.number(name) for name in kernel.NUMBERS},
            "open files": limits.OPEN_FILES,
            "memory": MEMORY_BYTES,
            "processes": PROCESSES,
        }

    def outcome(self, attack: Attack) -> str:
        """Return the outcome of an attack that cannot tell by itself, or an empty string."""
        match attack.outcome:
            case "victim_ended":
                code = self.victim.poll()
                return "" if code is None else f"it ended {how_ended(code)}"
            case "received":
                with suppress(OSError):
                    return str(self.udp.socket.recv(16).decode())
            case "left":
                return ", ".join(path for path in self.lasting if os.path.exists(path))
        return ""


@contextmanager
def set_up() -> Iterator[Scene]:
    """Yield the targets of attacks; remove them when the block ends."""
    with ExitStack() as made:
        yield Scene(made)


def besiege(device: str, progress: Callable[[str], None] = lambda tries: None) -> Siege:
    """Try all attacks in workers of a device; UnfitError if no worker can be started."""
    tried: list[Tried] = []
    reached: tuple[str, ...] = ()
    with set_up() as scene:
        for group in [[a for a in ATTACKS if not a.alone], *([a] for a in ATTACKS if a.alone)]:
            progress(group[0].tries)
            reached, lines, ended = _attempts(group, scene, device)
            for attack in group:
                if attack.tries not in lines and not attack.alone:
                    raise UnfitError(f"an attack ended its worker: {attack.tries}: {ended}.")
                line = lines.get(attack.tries, {"got": "", "refused": str(ended)})
                got = line["got"] or scene.outcome(attack)
                how = got or line.get("refused", "nothing was found")
                is_promised = attack.part in reached and (device == "cpu" or attack.on_cuda)
                state: State = HELD if not got else NOT_HELD if is_promised else NOT_THERE
                tried.append(Tried(attack.part, attack.tries, state, how))
    user = "root" if os.getuid() == 0 else "a user"
    return Siege(device=device, user=user, reached=reached, results=tried)


def _attempts(
    group: Iterable[Attack], scene: Scene, device: str
) -> tuple[tuple[str, ...], Mapping[str, Any], SandboxError | None]:
    """Run attacks in one worker; return its isolation, the outcomes, and how it ended."""
    from losscli.implementations.sandbox.client import Worker

    tries = [attack.tries for attack in group]
    source = f"{inspect.getsource(attacks)}\n\nrun({tries!r}, {scene.facts!r})\n"
    file = Source("attacks.py", Path(scene.folder, "attacks.py"), "", "", source.encode())
    ended = None
    try:
        worker = Worker(file, device, Setting(SMALL))
        log, reached = worker.end(), worker.reached
    except SandboxError as error:
        log, reached, ended = error.log, error.reached, error
    lines = (json.loads(line) for line in log.splitlines() if line.startswith("{"))
    return reached, {line.pop("attack"): line for line in lines}, ended
