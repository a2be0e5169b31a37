"""Plain fields of the checks in ``losscli/verify/checks``, read from the source without torch."""

import ast
import re
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[1] / "verify" / "checks"
_CHECK = re.compile(r"^@check\(\n(.*?)^\)\ndef (\w+)", re.MULTILINE | re.DOTALL)


def _read() -> dict[str, dict[str, Any]]:
    """Return each check's constant fields, in the order in which checks run."""
    found: dict[str, dict[str, Any]] = {}
    for file in _FOLDER.glob("*.py"):
        for fields, name in _CHECK.findall(file.read_text("utf-8")):
            call = ast.parse(f"check({fields})", mode="eval").body
            assert isinstance(call, ast.Call)
            given = {str(field.arg): field.value for field in call.keywords}
            found[name] = {k: v.value for k, v in given.items() if isinstance(v, ast.Constant)}
    return dict(sorted(found.items(), key=lambda item: int(item[1]["place"])))


_FIELDS = _read()
CATCHES: dict[str, str] = {name: fields["catches"] for name, fields in _FIELDS.items()}
ADVICE: dict[str, str] = {name: fields["advice"] for name, fields in _FIELDS.items()}
