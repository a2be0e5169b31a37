"""Takes built libraries into the wheel where ``python -m tools.wheel`` asks for it."""

from __future__ import annotations

import json
import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class TakeLibraries(BuildHookInterface):
    """Without ``LOSSCLI_PREBUILT``, the wheel has only the sources and fits any platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the folder of libraries, the tag and the bill of materials."""
        told = os.environ.get("LOSSCLI_PREBUILT")
        if not told or version == "editable":
            return
        given = json.loads(told)
        build_data["pure_python"] = False
        build_data["tag"] = given["tag"]
        build_data["force_include"][given["folder"]] = "losscli/prebuilt"
        build_data["sbom_files"].append(given["sbom"])
