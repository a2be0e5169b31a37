"""Plain fields of the checks in ``losscli/verify/checks``, read without torch."""

import ast
import re
from pathlib import Path
from typing import Any

from losscli.reasons import Facet

_PLAIN = ("place", "facet", "catches", "advice", "formerly")
_CHECK = re.compile(r"^@check\(\n(.*?)^\)\ndef (\w+)", re.MULTILINE | re.DOTALL)


def _read() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for file in (Path(__file__).parents[1] / "verify" / "checks").glob("*.py"):
        for fields, name in _CHECK.findall(file.read_text("utf-8")):
            call = ast.parse(f"check({fields})", mode="eval").body
            assert isinstance(call, ast.Call)
            given = {str(field.arg): field.value for field in call.keywords}
            found[name] = {k: ast.literal_eval(given[k]) for k in _PLAIN if k in given}
    return dict(sorted(found.items(), key=lambda item: int(item[1]["place"])))


_FIELDS = _read()
CATCHES: dict[str, str] = {name: fields["catches"] for name, fields in _FIELDS.items()}
ADVICE: dict[str, str] = {name: fields["advice"] for name, fields in _FIELDS.items()}
FACET_OF: dict[str, Facet] = {name: fields["facet"] for name, fields in _FIELDS.items()}
FORMER_CHECKS: dict[str, str] = {
    old: name for name, fields in _FIELDS.items() for old in fields.get("formerly", ())
}
