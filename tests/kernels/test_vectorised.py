"""The CPU's loops over elements compute with vectors; one that does not is several times slower.

Read off the machine code: a compiler says nothing where it makes a branch of a choice.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections import Counter

import pytest

from losscli.build.targets import CPU, LOSS, Target
from losscli.losses import LOSSES, WEIGHTED
from losscli.operators import loading
from tests.machinery import MACHINERY

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which("objdump"),
    reason="reads machine code of x86-64 by objdump",
)
FUNCTION = re.compile(r"^[0-9a-f]+ <(?P<name>.*)>:$")
ARITHMETIC = re.compile(r"\bv?(?:add|sub|mul|div)(?P<kind>[sp])[sd]\b")
"""An instruction on one number (s, scalar) or on a vector (p, packed)."""


def arithmetic(library):
    """Return how often each loop over elements computes with single numbers and with vectors."""
    command = ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found, counts = {}, Counter()
    for line in done.stdout.splitlines():
        if function := FUNCTION.match(line):
            counts = Counter()
            if "one_form<" in function["name"] and "[clone .cold]" not in function["name"]:
                found[function["name"]] = counts
        elif operation := ARITHMETIC.search(line):
            counts[operation["kind"]] += 1
    return found


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(loss, marks=[] if loss in (*MACHINERY, "policy") else pytest.mark.slow)
        for loss in (*LOSSES, *WEIGHTED)
    ],
)
def test_loops_of_a_loss_compute_with_vectors(loss):
    (library,) = loading._obtain([Target(LOSS, CPU, loss)])
    loops = arithmetic(library)

    assert len(loops) >= 12, "four dtypes, each with a sum, values and gradients"
    assert {name: c for name, c in loops.items() if c["s"] >= c["p"]} == {}
