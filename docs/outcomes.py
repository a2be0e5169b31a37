"""Tables of which mutations the checks found, and of verdicts on third-party files."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import Any

from docs.markdown import table
from losscli.runs.former_names import updated
from losscli.views.phrases import count

WIDTH = 100

TEXTS = {
    "< for <= at the kink": "< for <= where two branches meet",
    "the scale of a tensor of incoming gradients": "a grad_output for each element is not scaled",
    "without a reduction the scale is 1, and with one there is no such tensor": (
        "without a reduction the scale is 1, with one grad_output is a single number"
    ),
    "another number is learnt": "a wrong grad_output is predicted",
    "backward compares what was written: a wrong guess costs time alone": (
        "backward compares the prediction: a wrong one only costs time"
    ),
    "digits of a confident row's gradient": "the gradient of a confident row loses digits",
    "digits of a confident row are cancelled": "terms of a confident row cancel",
    "what the rounding of x - max leaves": "the rounding error of x - max is not corrected",
    "it assigns to no operand's .data; tests/kernels/test_changed_operands.py finds it": (
        "tests/kernels/test_changed_operands.py finds it"
    ),
    "a retained graph hands out what was written ahead": (
        "a retained graph returns the gradient that forward computed"
    ),
    "that is handed out once, and the next backward pass computes its own": (
        "it is returned once, and the next backward pass computes its own"
    ),
    (
        "an error is measured at the largest term of an element, beside which the digits that are "
        "lost are nothing; tests/kernels/test_row_digits.py finds it"
    ): (
        "errors are in ULP of an element's largest term, of which the lost digits are a tiny part; "
        "tests/kernels/test_row_digits.py finds it"
    ),
}
"""Present descriptions of mutations by those in records."""


def mutations(record: Mapping[str, Any]) -> str:
    """Return the score, which check failed first how often, and a row per surviving mutation."""
    results = record["results"]
    statuses = Counter(result["status"] for result in results)
    killers = Counter(result["by"] for result in results if result["by"])
    score = ", ".join(f"{number} {status}" for status, number in statuses.items())
    first = ", ".join(f"`{name}` {number}" for name, number in killers.most_common())
    said = f"{count(len(results), 'mutation')}: {score}. Checks that failed first: {first}."
    survivors = []
    for each in results:
        if not each["by"]:
            mistake, reason = (TEXTS.get(each[key], each[key]) for key in ("mistake", "reason"))
            why = f"{each['status']}: {reason}".rstrip(": ")
            survivors.append([f"`{each['file']}`", mistake, why])
    told = table(["file", "mistake", "why it survived"], survivors) if survivors else ""
    return "\n\n".join(filter(None, (textwrap.fill(said, WIDTH), told)))


def wild(record: dict[str, Any]) -> str:
    """Return a row per third-party file: how it was judged, and whether that was true."""
    rows = []
    for each in record["files"]:
        options = ", ".join(f"`{name}`" for name in re.findall(r"--[a-z]+", each["options"]))
        row = [each["origin"], f"`{each['file']}`", each["form"], options]
        for found in (each.get("cpu"), each.get("cuda")):
            if found:
                true = "yes" if found["true"] else "no"
                row += [updated(found["verdict"]), true, f"{found['seconds']:.0f}"]
            else:
                row += ["", "", ""]
        rows.append(row)
    of_device = ["true", "seconds"]
    columns = ["origin", "file", "form", "options"]
    return table([*columns, "on a CPU", *of_device, "on a GPU", *of_device], rows)


NOT_TAKEN = ("NOT JUDGED", "DOES NOT BUILD")
"""Verdicts on files that the judge could not call."""


def shares(record: dict[str, Any]) -> str:
    """Return how many third-party files were judged, and how many verdicts were true."""
    rows = []
    for device, title in (("cpu", "CPU"), ("cuda", "GPU")):
        found = [each for each in record["files"] if device in each]
        if not found:
            continue
        taken = [each for each in found if each[device]["verdict"] not in NOT_TAKEN]
        plain = [each for each in taken if "--call" not in each["options"]]
        true = [each for each in found if each[device]["true"]]
        total = len(found)
        rows.append(
            [
                title,
                str(total),
                str(len({each["origin"] for each in found})),
                f"{len(taken)} ({len(taken) / total:.0%})",
                str(len(plain)),
                f"{len(true)} ({len(true) / total:.0%})",
                f"{record[device]['machine']}, {record[device]['commit']}",
            ]
        )
    columns = [
        "device",
        "files",
        "origins",
        "taken",
        "without `--call`",
        "true verdicts",
        "machine",
    ]
    return table(columns, rows)
