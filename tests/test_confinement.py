"""The walls of a worker one by one; what all of them refuse together is in test_isolation.py."""

import errno
import os
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from losscli.build import headers
from losscli.errors import UnfitError
from losscli.files.directories import CACHE_VARIABLE
from losscli.implementations.allowance import Allowance
from losscli.implementations.implementation import Setting
from losscli.implementations.sandbox import zygote
from losscli.implementations.sandbox.client import Worker
from losscli.implementations.sandbox.confinement import environment, kernel, limits, mounts, seccomp
from losscli.implementations.sandbox.zygote import IDLE_SECONDS
from losscli.implementations.source import Source
from losscli.machine import kernel_files
from losscli.processes import Process
from tests.parameters import naming

HEADERS = (
    Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Path("/usr/include/asm-generic/unistd.h"),  # aarch64's
)
ALLOWED = 0x7FFF0000


@pytest.mark.parametrize(("machine", "header"), [*zip(kernel.MACHINES, HEADERS, strict=True)])
def test_numbers_of_calls_are_those_of_the_kernel(machine, header):
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    known = dict(re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text(), re.M))
    column = kernel.MACHINES.index(machine)
    found = {name: str(numbers[column]) for name, numbers in kernel.NUMBERS.items()}
    newer = {"open_tree_attr", "memfd_secret", "quotactl_fd"} - {*known}  # than the header
    for name in newer:
        del found[name]
    assert found == {name: known.get(name) for name in found}


def ran(program: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """Return what a filter answers to a call."""
    call = struct.pack("=IIQ6Q", number, architecture, 0, argument, *[0] * 5)
    steps = list(struct.iter_unpack("=HBBI", program))
    at, value = 0, 0
    while True:
        operation, met, unmet, operand = steps[at]
        at += 1
        if operation == 0x06:
            return operand
        if operation == 0x20:
            (value,) = struct.unpack_from("=I", call, operand)
            continue
        true = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand}[operation]
        at += met if true else unmet


@pytest.mark.parametrize("machine", kernel.MACHINES)
def test_filter_refuses_its_calls_and_no_others(monkeypatch, machine):
    monkeypatch.setattr(kernel, "machine", lambda: machine)
    architecture = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    program = seccomp.program(seccomp.REFUSED, [socket.AF_INET])
    errors = {name: each.error for each in seccomp.REFUSED for name in each.names.split()}
    clone, made, prctl = map(kernel.number, ("clone", "socket", "prctl"))

    def answer(number, argument=0, architecture=architecture):
        found = ran(program, architecture, number, argument)
        return 0 if found == ALLOWED else found & 0xFFFF

    for name, error in errors.items():
        with naming(name):
            assert answer(kernel.number(name)) == error
    refused = {kernel.number(name) for name in errors}
    assert [n for n in range(600) if n not in {*refused, clone, made, prctl} and answer(n)] == []
    assert answer(clone, 0x3D0F00) == 0  # a thread
    assert answer(clone, 0x10000000 | 17) == answer(clone, 0x40000000 | 17) == errno.EPERM
    assert answer(made, socket.AF_INET) == 0
    assert answer(made, socket.AF_UNIX) == answer(made, socket.AF_VSOCK) == errno.EAFNOSUPPORT
    assert [answer(prctl, option) for option in (1, 4, 38)] == [errno.EPERM, 0, 0]
    assert answer(0, architecture=0x40000003) == errno.ENOSYS  # a program of 32 bits
    assert answer(0x40000000) == errno.ENOSYS


def test_filter_with_cuda_leaves_what_its_driver_calls():
    refused = {name for each in seccomp.REFUSED if each.on_cuda for name in each.names.split()}
    assert {"bpf", "keyctl", "mount", "unshare"} <= refused
    assert not {"ptrace", "process_vm_readv", "memfd_create", "pidfd_getfd"} & refused


SECRETS = (
    *("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "NVIDIA_API_KEY", "PIP_INDEX_URL", "SSH_AUTH_SOCK"),
    *("OPENAI_API_KEY", "GITHUB_TOKEN", "MKLS_TOKEN", "HOME", "USER", "TORCH_HOME"),
)
NEEDED = (
    *("PATH", "LD_LIBRARY_PATH", "CXX", "CPATH", "OMP_NUM_THREADS", "GOMP_CPU_AFFINITY", "LC_ALL"),
    *("CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "MALLOC_TOP_PAD_", "PYTHONPATH"),
)


def test_workers_and_what_forks_them_get_the_variables_alone_that_they_need(monkeypatch):
    given = {name: f"value of {name}" for name in (*SECRETS, *NEEDED)}
    started = []

    class Ready:
        def receive(self, seconds: float) -> bytes:
            return b"ready"

    def start(self: Any, command: object, environ: dict[str, str]) -> None:
        self.channel = Ready()
        started.append(environ)

    monkeypatch.setattr(Process, "__init__", start)
    monkeypatch.setattr(headers, "search_path", lambda given: given)
    monkeypatch.setattr(os, "environ", given)
    zygote.Zygote()
    for environ in (*started, environment.of_workers(given)):
        assert {name: environ[name] for name in NEEDED} == {name: given[name] for name in NEEDED}
        assert not {*SECRETS} & {*environ}


def test_cache_is_named_to_files_alone_that_import_losscli(monkeypatch, tmp_path):
    cache = str(tmp_path)
    monkeypatch.setenv(CACHE_VARIABLE, cache)
    sources = {
        "from losscli.functional import mse_loss": True,
        "import torch, losscli as own": True,
        "def f():\n    from losscli.nn import MSELoss": True,
        "import torch\n# losscli": False,
    }
    for source, imports in sources.items():
        with naming(source):
            file = Source("k.py", tmp_path / "k.py", "", "", source.encode())
            assert file.imports_losscli is imports
            environ = environment.of_workers(os.environ, cached=imports)
            assert (CACHE_VARIABLE in environ) is imports
            hidden = environment.hidden_from_workers(cached=imports)
            if imports:
                private = {f"{cache}/{name}" for name in ("locks", "verdicts", "scratch")}
                assert private <= {*hidden}
            else:
                assert hidden == [cache]


def said(path: Path, source: str, **limits: int) -> str:
    """Return what a file prints while it is imported in a worker."""
    file = Source(str(path), path.absolute(), "", "", source.encode())
    return Worker(file, "cpu", Setting(Allowance(**limits))).end()


@pytest.fixture
def in_namespaces(tmp_path):
    file = Source("k.py", tmp_path / "k.py", "", "", b"")
    worker = Worker(file, "cpu")
    worker.end()
    if "temporary files" not in worker.reached:
        pytest.skip("this machine refuses namespaces")


LOOK = """
import os
from helper import VALUE
print("helper", VALUE)
print("beside", sorted(os.listdir("/tmp")))
print("folders", [name for name in ("/run", "/var/tmp") if os.listdir(name)])
"""


def test_neighbours_of_a_file_are_there_whatever_folder_the_command_runs_in(
    in_namespaces, tmp_path, monkeypatch
):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "helper.py").write_text("VALUE = 17\n")
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    for named in ("files/k.py", "other/../files/k.py", str(tmp_path / "link" / "k.py")):
        with naming(named):
            assert "helper 17" in said(Path(named), LOOK)


def test_torch_compile_has_no_pool_of_processes_in_a_worker(tmp_path):
    asks = "import torch._inductor.config as config\nprint('threads', config.compile_threads)"
    said(tmp_path / "k.py", "")
    time.sleep(IDLE_SECONDS + 0.1)  # what workers are forked from imports it now
    assert "threads 1" in said(tmp_path / "k.py", asks)


def test_folders_of_temporary_files_show_what_is_needed_alone(in_namespaces, tmp_path):
    (tmp_path / "helper.py").write_text("VALUE = 17\n")
    top = Path("/tmp") / tmp_path.relative_to("/tmp").parts[0]
    needed = {top.name, "work"}
    needed |= {Path(p).parts[2] for p in (sys.prefix, *sys.path) if p.startswith("/tmp/")}
    lines = said(tmp_path / "k.py", LOOK).splitlines()
    assert f"beside {sorted(needed)}" in lines
    assert "folders []" in lines


def test_modules_beside_a_file_that_lies_in_a_covered_folder_are_there(monkeypatch, tmp_path):
    covered = tmp_path / "covered"
    (covered / "package").mkdir(parents=True)
    for name in ("module.py", "package/__init__.py", "socket"):
        (covered / name).touch()
    (covered / "other").mkdir()
    found = mounts._roots([str(covered)], [str(covered)])
    assert found == [f"{covered}/module.py", f"{covered}/package"]


COVERED = [
    (["/usr/lib"], ["/tmp"], []),
    (["/tmp/a", "/tmp/a/b"], ["/tmp"], ["/tmp/a"]),
    (["/tmp/a", "/tmp/a/cache/b"], ["/tmp", "/tmp/a/cache"], ["/tmp/a", "/tmp/a/cache/b"]),
    (["/tmp/a", "/tmp/a/cache"], ["/tmp", "/tmp/a/cache"], ["/tmp/a"]),
]


def test_covered_folders_are_mounted_once(monkeypatch):
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    for needed, covered, brought_back in COVERED:
        assert mounts._roots(needed, covered) == brought_back


CACHED = """
import os
for name in ("library", "locks", "headers/torch"):
    print(name, os.path.exists({cache!r} + "/" + name))
"""


@pytest.mark.parametrize(
    ("first", "seen"),
    [("", ["headers/torch"]), ("import losscli\n", ["library", "headers/torch"])],
    ids=["others", "imports losscli"],
)
def test_cache_shows_compiled_headers_and_to_files_that_import_losscli_its_libraries(
    in_namespaces, tmp_path, monkeypatch, first, seen
):
    cache = tmp_path / "cache"
    for name in ("library", "locks", "headers/torch"):
        (cache / name).mkdir(parents=True)
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    monkeypatch.setattr(headers, "search_path", lambda given: f"{cache}/headers")
    lines = said(tmp_path / "k.py", first + CACHED.format(cache=str(cache))).splitlines()
    found = {line.split()[0] for line in lines if line.endswith("True")}
    # A folder that is covered is there, and empty.
    assert found - {"locks"} == {*seen}


def test_worker_that_cannot_be_closed_in_is_no_fault_of_the_file(tmp_path, monkeypatch):
    lost = tmp_path / "lost"
    monkeypatch.setattr(environment, "hidden_from_workers", lambda *, cached: [str(lost) + "\0"])
    with pytest.raises(UnfitError, match="a worker cannot be isolated"):
        said(tmp_path / "k.py", "")


SHARED = """
import os, signal, sys
from losscli.implementations.sandbox.confinement import limits
from losscli.implementations.sandbox.confinement.limits import Watch
memory = bytearray(b"x") * 2**26
def start(count, writes):
    for _ in range(count):
        if not os.fork():
            memory[:writes] = b"y" * writes
            os.write(1, b".")
            signal.pause()
start(4, 0)
sys.stdin.read(1)
print(" ", Watch(2**27, 0).look(), Watch(0, 3).look(), Watch(0, 4).look(), flush=True)
start(2, 2**26)
sys.stdin.read(1)
print(" ", Watch(2**27, 0).look(), Watch(0, 0).look(), flush=True)
os.killpg(0, signal.SIGKILL)
"""


OLDER = """
from pathlib import Path
from losscli.machine import kernel_files
class Older(type(Path())):
    def glob(self, pattern):
        return super().glob(pattern.replace("children", "nothing"))
    def read_text(self):
        if self.name == "smaps_rollup":
            raise FileNotFoundError
        return super().read_text()
limits.Path, kernel_files.PROC = Older, Older("/proc")
"""


@pytest.mark.parametrize(
    ("kernel", "shared"), [("", b"0"), (OLDER, b"256")], ids=["this kernel", "one that tells less"]
)
def test_memory_that_processes_share_counts_once_where_the_kernel_tells_it(kernel, shared):
    program = subprocess.Popen(
        [sys.executable, "-u", "-c", SHARED.replace("\nmemory", f"\n{kernel}memory", 1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert program.stdout
    assert program.stdin
    with program:
        told = []
        for count in (4, 2):
            assert program.stdout.read(count) == b"." * count
            program.stdin.write(b"\n")
            program.stdin.flush()
            told += program.stdout.readline().split()
    assert told == [shared, b"257", b"0", b"256", b"0"]


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Return the folder of a session's control groups, of which this process is in one."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/session/own\n")
    session = tmp_path / "sys/fs/cgroup/session"
    (session / "own").mkdir(parents=True)
    (session / "cgroup.procs").touch()
    (session / "cgroup.subtree_control").write_text("cpu memory pids\n")
    monkeypatch.setattr(kernel_files, "PROC", tmp_path / "proc")
    monkeypatch.setattr(kernel_files, "SYS", tmp_path / "sys")
    return session


def test_group_lies_beside_that_of_the_judge_and_has_limits(groups, monkeypatch):
    make_folder = os.mkdir

    def make(name, dir_fd):
        make_folder(name, dir_fd=dir_fd)
        for file in ("memory.max", "pids.max", "cgroup.procs"):
            (groups / name / file).touch()
        (groups / name / "memory.events").write_text("oom 1\noom_kill 0\n")

    monkeypatch.setattr(os, "mkdir", make)
    made = limits.make_group(2**30, 64)
    assert made
    (folder,) = groups.glob("losscli-*")
    made.enter()
    contents = {name: (folder / name).read_text() for name in ("memory.max", "pids.max")}
    assert contents == {"memory.max": str(2**30), "pids.max": "64"}
    assert (folder / "cgroup.procs").read_text() == "0"
    assert not made.ran_out
    (folder / "memory.events").write_text("oom 1\noom_kill 2\n")
    assert made.ran_out
    made.remove()


def test_no_group_is_left_where_none_can_be_made(groups):
    for control in ("cpu memory pids", "cpu pids", ""):
        (groups / "cgroup.subtree_control").write_text(control)
        (groups / "losscli-1").mkdir(exist_ok=True)
        assert limits.make_group(2**30, 64) is None
        left = [each.name for each in groups.glob("losscli-*")]
        assert left == ([] if "memory" in control else ["losscli-1"])
