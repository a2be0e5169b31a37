"""The programs under examples do what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PROPOSAL = re.compile(r"\d+: (?P<word>[A-Z ]+), (?P<milliseconds>[\d.]+) ms, (?P<parts>.*)")


@pytest.mark.slow
def test_the_search_ends_with_a_right_kernel_that_is_faster_than_its_first(tmp_path):
    own = {"LOSSCLI_DATA_DIR": str(tmp_path), "LOSSCLI_DEVICE": "cpu"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / "search.py", "4", "1"],
        env=os.environ | own,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    first, *others = (found.groupdict() for found in PROPOSAL.finditer(done.stdout))
    right = [each for each in others if each["word"] == "RIGHT"]
    assert right, done.stdout
    assert float(right[-1]["milliseconds"]) < float(first["milliseconds"]), done.stdout
    assert "functional.smooth_l1_loss(x, y, reduction=reduction" in done.stdout.split("\n\n")[-2]
