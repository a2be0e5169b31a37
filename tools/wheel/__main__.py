"""Builds the wheels: the plain one with the sources, and one with kernels for each architecture.

    python -m tools.wheel [--torch FOLDER_OR_WHEEL]... [--loss NAMES] [--cuda-loss NAMES]

The wheels are written to ``dist``; ``build/wheel`` keeps what was compiled. ``--torch`` names an
installed torch's folder, or a wheel of one, for its headers; by default this environment's torch.
What cannot be built here is omitted and named. ``MAX_JOBS``, ``CXX``, ``CUDACXX`` and
``LOSSCLI_CUDA_ARCHITECTURES`` apply as they do to ``losscli build``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from losscli.build.cache import MANIFEST
from losscli.build.compilers import Compilers
from losscli.build.plan import TorchInstall, installed_torch
from losscli.build.prebuilt import LEVELS, Prebuilt
from losscli.build.toolchain import find_compiler
from losscli.console.streams import emit
from losscli.errors import BuildError, LosscliError
from losscli.losses import find_loss
from losscli.machine.commits import commit_of
from losscli.render.text import text
from losscli.units import format_bytes
from losscli.views.document import Sentence, Table

from .libraries import TRAINING, Kit, missing_torches, platform_tag, read_torch
from .materials import SBOM, add_licenses, write_sbom

ROOT = Path(__file__).resolve().parents[2]
PREBUILT = "LOSSCLI_PREBUILT"
"""Names the folder that ``hatch_build.py`` takes into a wheel."""
LIMIT_BYTES = 100e6
"""The largest file that PyPI takes."""


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    work, out = Path(asked.work).resolve(), Path(asked.out).resolve()
    torches = [read_torch(Path(each), work / "torch") for each in asked.torch]
    torches = torches or [read_torch(installed_torch().root, work)]
    kit = Kit(
        work, tuple(torches), _names(asked.loss), _names(asked.cuda_loss), _words(asked.level)
    )
    for version in missing_torches(torches):
        kit.left_out.append(f"the binding for torch {version}: no headers of it were given")
    if asked.plain:
        _build_wheel(out, "--sdist", "--wheel")
    for machine in LEVELS:
        prebuilt = kit.build(machine, work / machine / "prebuilt")
        if prebuilt:
            wheel = _pack(machine, prebuilt, torches, out)
            _report(wheel, prebuilt)
    for reason in kit.left_out:
        emit(f"left out: {reason}")
    return 0


def _pack(machine: str, prebuilt: Prebuilt, torches: Sequence[TorchInstall], out: Path) -> Path:
    folder = prebuilt.root
    add_licenses(folder, torches)
    tools = [find_compiler().identity.splitlines()[0]]
    if any(known.cuda for known in prebuilt.libraries.values()):
        tools.append(Compilers(torches[0]).nvcc.identity.splitlines()[-1])
    beside = folder.with_name(SBOM)
    write_sbom(beside, prebuilt, torches, tools, commit_of(ROOT))
    tag = platform_tag(machine, prebuilt)
    told = {"folder": str(folder), "tag": f"py3-none-{tag}", "sbom": str(beside)}
    before = {*out.glob("*.whl")}
    for old in out.glob(f"*{tag}.whl"):
        old.unlink()
        before.discard(old)
    _build_wheel(out, "--wheel", **{PREBUILT: json.dumps(told)})
    (wheel,) = {*out.glob("*.whl")} - before
    return wheel


def _build_wheel(out: Path, *what: str, **variables: str) -> None:
    # The hatchling of this environment is the tested one, and needs no network.
    command = [sys.executable, "-m", "build", "--no-isolation", *what]
    command += ["--outdir", str(out), str(ROOT)]
    environ = {**os.environ, **variables}
    done = subprocess.run(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stdout}")


def check(wheel: Path) -> None:
    """Raise BuildError if a wheel's library differs from the manifest or is missing."""
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.startswith("losscli/prebuilt/lib")]
        facts = json.loads(archive.read(f"losscli/prebuilt/{MANIFEST}"))["libraries"]
        known = {f"losscli/prebuilt/{each['library']}": each["sha256"] for each in facts}
        found = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}
    if known != found:
        wrong = sorted({name for name, _ in known.items() ^ found.items()})
        raise BuildError(f"{wheel}: the manifest does not hold for {', '.join(wrong)}")


def check_tag(wheel: Path) -> None:
    """Raise BuildError unless a wheel's tag is what its libraries need, by auditwheel.

    They may also need torch's libraries, which the wheel's requirement installs.
    """
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"auditwheel failed: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    if not wheel.stem.endswith(found["sym_tag"]):
        raise BuildError(f"{wheel} needs the tag {found['sym_tag']}, by auditwheel.")
    others = {*found["external_libs"]} - {"libc10.so", "libtorch_cpu.so"}
    if others:
        raise BuildError(f"{wheel} needs {', '.join(sorted(others))}, which no policy allows.")


def _report(wheel: Path, prebuilt: Prebuilt) -> None:
    check(wheel)
    check_tag(wheel)
    with zipfile.ZipFile(wheel) as archive:
        packed = {Path(info.filename).name: info for info in archive.infolist()}
    groups: dict[str, list[str]] = {}
    for name in prebuilt.libraries:
        groups.setdefault(name.split(".", 1)[1].removesuffix(".so"), []).append(name)
    rows = [
        (
            variant,
            str(len(names)),
            format_bytes(sum(packed[name].file_size for name in names)),
            format_bytes(sum(packed[name].compress_size for name in names)),
        )
        for variant, names in groups.items()
    ]
    size = wheel.stat().st_size
    table = Table(("variant", "libraries", "installed", "in the wheel"), rows)
    emit(text((Sentence(f"{wheel}: {format_bytes(size)}"), table)))
    if size > LIMIT_BYTES:
        raise BuildError(f"{wheel} is larger than {format_bytes(LIMIT_BYTES)}. Name fewer losses.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.wheel", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--torch", action="append", default=[], metavar="FOLDER_OR_WHEEL")
    parser.add_argument("--loss", default=",".join(TRAINING), metavar="NAMES")
    parser.add_argument("--cuda-loss", default=",".join(TRAINING), metavar="NAMES")
    levels = ",".join(level for known in LEVELS.values() for level in known)
    parser.add_argument("--level", default=levels, metavar="NAMES")
    parser.add_argument("--work", default=str(ROOT / "build" / "wheel"), metavar="FOLDER")
    parser.add_argument("--out", default=str(ROOT / "dist"), metavar="FOLDER")
    parser.add_argument("--no-plain", dest="plain", action="store_false")
    return parser


def _words(given: str) -> tuple[str, ...]:
    return tuple(word for word in given.split(",") if word)


def _names(given: str) -> tuple[str, ...]:
    return tuple(find_loss(name).name for name in _words(given))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LosscliError as error:
        sys.exit(f"tools.wheel: {error}")
