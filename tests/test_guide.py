"""`losscli guide` prints docs/guide.md, whose commands are commands of losscli."""

import re
import shlex

import click

from losscli.cli import main
from losscli.cli.guide import guide
from tests.documents import ROOT
from tests.parameters import naming

TEXT = (ROOT / "docs" / "guide.md").read_text()


def test_guide_is_the_document(capsys):
    assert guide() == ROOT / "docs" / "guide.md"
    assert main.run(["guide"]) == 0
    assert capsys.readouterr().out == TEXT


def test_rules_are_numbered_and_nearly_all_have_a_command():
    rules = re.split(r"^\*\*\d+\. ", TEXT.partition("## For a model")[0], flags=re.MULTILINE)[1:]
    numbers = re.findall(r"^\*\*(\d+)\. ", TEXT, re.MULTILINE)
    assert numbers == [str(n) for n in range(1, len(rules) + 1)]
    assert [rule[:20] for rule in rules if "    losscli " not in rule] == ["Time controls beside"]


def test_commands_of_the_guide_are_accepted(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.py").write_text("def mse_loss(input, target): ...\n")
    for line in re.findall(r"^    (losscli .*)$", TEXT, re.MULTILINE):
        _, name, *arguments = shlex.split(line)
        context = click.Context(main.group, info_name="losscli")
        with naming(line):
            main.group.get_command(context, name).make_context(name, arguments, context)
