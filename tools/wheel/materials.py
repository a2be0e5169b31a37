"""What a wheel says of its libraries: licenses and the list of what they were made from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from losscli import __version__
from losscli.build.plan import TorchInstall
from losscli.build.prebuilt import Prebuilt

SBOM = "losscli.cdx.json"
NOTICE = """\
The libraries in this folder are compiled from losscli's C++ and CUDA sources, which are in
losscli/csrc, under losscli's license (MIT). They also contain code of these projects:

- PyTorch: inline functions of its headers, in liblosscli_torch.*.so. BSD-3-Clause, in
  PYTORCH-LICENSE.
- GCC's libstdc++ and libgcc: inline functions of their headers. GPL-3.0-or-later with the GCC
  Runtime Library Exception, which permits this use: https://www.gnu.org/licenses/gcc-exception-3.1
- NVIDIA's CUDA runtime, linked statically, in liblosscli_*_cuda.*.so where there are any. NVIDIA
  CUDA Toolkit EULA, whose Attachment A lists it as redistributable:
  https://docs.nvidia.com/cuda/eula
"""


def add_licenses(folder: Path, torches: Sequence[TorchInstall]) -> None:
    licenses = folder / "licenses"
    licenses.mkdir()
    (licenses / "NOTICE").write_text(NOTICE)
    found = sorted(torches[0].root.parent.glob("torch-*.dist-info/licenses/LICENSE"))
    shutil.copyfile(found[0], licenses / "PYTORCH-LICENSE")


def write_sbom(
    path: Path,
    prebuilt: Prebuilt,
    torches: Sequence[TorchInstall],
    tools: Sequence[str],
    commit: str | None,
) -> None:
    """Write the software bill of materials, CycloneDX 1.6, without date and random numbers."""
    name = "losscli"
    purl = f"pkg:pypi/{name}@{__version__}"
    libraries = [
        {
            "type": "file",
            "bom-ref": known.library,
            "name": f"losscli/prebuilt/{known.library}",
            "hashes": [{"alg": "SHA-256", "content": known.sha256}],
            "licenses": [{"license": {"id": "MIT"}}],
        }
        for _, known in sorted(prebuilt.libraries.items())
    ]
    parts = [
        *(
            _part("torch", t.version, "BSD-3-Clause", f"pkg:pypi/torch@{t.version}")
            for t in torches
        ),
        _part("libstdc++", "", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    ]
    cuda = sorted({known.cuda for known in prebuilt.libraries.values() if known.cuda})
    parts += [_part("cudart_static", version, "LicenseRef-NVIDIA-CUDA-EULA") for version in cuda]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": __version__,
                "purl": purl,
                "licenses": [{"license": {"id": "MIT"}}],
                "properties": [{"name": "losscli:commit", "value": commit or "unknown"}],
            },
            "tools": {"components": [{"type": "application", "name": tool} for tool in tools]},
        },
        "components": [*libraries, *parts],
        "dependencies": [
            {"ref": purl, "dependsOn": [each["bom-ref"] for each in (*libraries, *parts)]}
        ],
    }
    path.write_text(json.dumps(bill, indent=1) + "\n")


def _part(name: str, version: str, license: str, purl: str = "") -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": purl or f"{name}@{version}",
        "name": name,
        **({"version": version} if version else {}),
        **({"purl": purl} if purl else {}),
        "licenses": [{"expression": license}],
    }
