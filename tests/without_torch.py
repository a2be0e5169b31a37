"""Runs losscli in a process that cannot import torch."""

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

WITHOUT_TORCH = """
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise AssertionError("imported torch")

sys.meta_path.insert(0, Refuse())
"""
_FORKS = """
import gc, json, os, sys, tempfile
%s
from contextlib import suppress
from importlib import import_module
from losscli.cli.main import COMMANDS, run
for name in COMMANDS:  # as each fork would, in a quarter of a second
    with suppress(ImportError):
        import_module("losscli.cli." + name.replace("-", "_"))
gc.freeze()
for line in sys.stdin:
    arguments, folder, environ = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if not (child := os.fork()):
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environ)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv[1:] = arguments
            code = run()
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = [file.seek(0) or file.read().decode() for file in (out, err)]
    print(json.dumps([code, *texts]), flush=True)
"""


@cache
def _started(prelude: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _FORKS % prelude]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    atexit.register(process.communicate)
    return process


def run_after(prelude: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run losscli in a fork of a process that has run a prelude and imported the commands."""
    process = _started(prelude)
    assert process.stdin
    assert process.stdout
    print(json.dumps([arguments, os.getcwd(), dict(os.environ)]), file=process.stdin, flush=True)
    return subprocess.CompletedProcess(arguments, *json.loads(process.stdout.readline()))


def run_without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_after(WITHOUT_TORCH, *arguments)
