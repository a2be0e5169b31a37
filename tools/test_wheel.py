"""The wheel with kernels: its contents, its description, and that it is used."""

import json
import os
import platform
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from losscli.build.cache import Manifest
from losscli.build.plan import TorchInstall
from losscli.build.prebuilt import Prebuilt, cpu_levels
from losscli.errors import BuildError, UsageError
from tests.documents import ROOT
from tests.parameters import naming
from tools.wheel import __main__ as tool
from tools.wheel.libraries import missing_torches, needed_glibc, platform_tag, read_torch
from tools.wheel.materials import write_sbom

NAME = "liblosscli_mse_cpu.x86-64-v3.so"
CONTENT = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0"
DIGEST = "40a2da4d9d5e5ca0e4b4d8d3b8a16cc6ad7b1a7a3a7e0d2ab1e0c7e22e0c9a55"


def known(**facts):
    return replace(Manifest(NAME, len(CONTENT), DIGEST, "key", glibc="2.34"), **facts)


def test_oldest_glibc_of_a_library_gives_the_tag(tmp_path):
    library = tmp_path / NAME
    library.write_bytes(CONTENT)
    assert needed_glibc(library) == "2.34"
    library.write_bytes(b"no symbols")
    assert needed_glibc(library) == "2.17"
    libraries = {"a": known(glibc="2.9"), "b": known(glibc="2.34")}
    assert platform_tag("x86_64", Prebuilt(tmp_path, libraries)) == "manylinux_2_34_x86_64"
    assert platform_tag("aarch64", Prebuilt(tmp_path, {})) == "manylinux_2_17_aarch64"


def test_torch_is_read_from_a_folder_and_from_a_wheel(tmp_path):
    files = {
        "torch/version.py": "__version__ = '2.12.1+cpu'\n",
        "torch/include/c10/macros/Macros.h": "",
        "torch/lib/libc10.so": "left in the wheel",
        "torch-2.12.1+cpu.dist-info/licenses/LICENSE": "",
    }
    wheel = tmp_path / "torch-2.12.1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    found = read_torch(wheel, tmp_path / "work")
    assert found.version == "2.12.1+cpu"
    assert not (found.root / "lib").exists()
    assert read_torch(found.root, tmp_path) == found
    assert "2.12" not in missing_torches([found])
    assert "2.13" in missing_torches([found])
    (found.root / "version.py").write_text("__version__ = '2.12.0a0+git1234567'\n")
    with pytest.raises(UsageError, match="is not a release"):
        read_torch(found.root, tmp_path)
    with pytest.raises(UsageError, match="has no torch with headers"):
        read_torch(tmp_path / "none", tmp_path)


@pytest.mark.parametrize(
    ("content", "facts", "right"),
    [
        (CONTENT, [known()], True),
        (CONTENT + b"!", [known()], False),
        (CONTENT, [], False),
        (CONTENT, [known(), known(library="liblosscli_mse_cpu.x86-64-v4.so")], False),
    ],
)
def test_manifest_has_the_hash_of_each_library_and_no_more(tmp_path, content, facts, right):
    import hashlib

    digest = hashlib.sha256(CONTENT).hexdigest()
    prebuilt = Prebuilt(tmp_path, {each.library: replace(each, sha256=digest) for each in facts})
    prebuilt.write()
    wheel = tmp_path / "losscli.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"losscli/prebuilt/{NAME}", content)
        archive.write(tmp_path / "manifest.json", "losscli/prebuilt/manifest.json")
    if right:
        tool.check(wheel)
    else:
        with pytest.raises(BuildError, match="the manifest does not hold for"):
            tool.check(wheel)


def test_bill_of_materials_lists_libraries_and_what_is_in_them(tmp_path):
    prebuilt = Prebuilt(tmp_path, {NAME: known(), "b": known(library="b", cuda="13.0")})
    torches = [TorchInstall("2.13.0", tmp_path, None, True)]
    for name in ("one", "two"):
        write_sbom(tmp_path / name, prebuilt, torches, ["g++ 12.2.0"], "1234567")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    bill = json.loads((tmp_path / "one").read_text())
    names = [each["name"] for each in bill["components"]]
    assert names == [
        *(f"losscli/prebuilt/{name}" for name in ("b", NAME)),
        *("torch", "libstdc++", "cudart_static"),
    ]
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(set(references)) == len(references)
    assert bill["dependencies"][0]["dependsOn"] == references
    assert bill["components"][1]["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]


SCRIPT = """
import torch
import losscli.functional as F
from losscli.operators import loading

x, y = torch.randn(100, requires_grad=True), torch.randn(100)
F.mse_loss(x, y).backward()
print(*(library._name for library in loading._loaded.values()))
"""


@pytest.mark.slow
def test_two_builds_are_equal_and_serve_a_machine_without_a_compiler(tmp_path):
    if platform.machine() != "x86_64":
        pytest.skip("the levels are those of x86-64")
    wheels = []
    for name in ("one", "two"):
        out = tmp_path / name
        options = ("--loss", "mse", "--level", cpu_levels()[-1], "--cuda-loss", "", "--no-plain")
        assert tool.main([*options, "--work", str(out / "work"), "--out", str(out)]) == 0
        wheels += out.glob("*.whl")
    one, two = wheels
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()

    with zipfile.ZipFile(one) as archive:
        archive.extractall(tmp_path / "installed")
    environ = {
        **{name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ},
        "PATH": "",
        "PYTHONPATH": str(tmp_path / "installed"),
        "LOSSCLI_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = [Path(name) for name in done.stdout.split()]
    assert [path.parent for path in loaded] == [tmp_path / "installed/losscli/prebuilt"] * 2
    assert not (tmp_path / "cache").exists()


def test_no_kernel_is_in_an_unnamed_namespace_which_nvcc_names_after_the_folder() -> None:
    for path in sorted((ROOT / "csrc").rglob("*.cu*")):
        unnamed = re.findall(r"^namespace \{$.*?^\}  // namespace$", path.read_text(), re.M | re.S)
        with naming(path.relative_to(ROOT)):
            assert not [text for text in unnamed if "__global__" in text]
