"""Runs losscli in a process that cannot import torch."""

import subprocess
import sys

WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise AssertionError("imported torch")

sys.meta_path.insert(0, Refuse())
from losscli.cli.main import run
sys.exit(run())
"""


def run_without_torch(*arguments):
    command = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
