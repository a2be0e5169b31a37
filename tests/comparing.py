"""Runs in files, and `losscli compare` of them."""

from pathlib import Path

import losscli
from losscli.cli import main
from losscli.render.records import render


def writer_in(folder, monkeypatch):
    """Return a function that writes a run in JSON, in the directory that the test runs in."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("PYTHONPATH", str(Path(losscli.__file__).parents[1]))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def write(name, made, format="json"):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(made, format) + "\n")

    return write


def compare(*arguments):
    return main.run(["compare", *arguments])
