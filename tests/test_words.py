"""Texts that users read have the field's terms, and none of tests/data/private_words.txt."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator

import click
import yaml

import losscli.functional
import losscli.nn
from docs.pages import losses, records
from losscli.cli.main import group
from losscli.judge import judge_many
from losscli.verify import repeat
from tests.documents import ROOT
from tests.parameters import naming

LINES = (ROOT / "tests/data/private_words.txt").read_text().splitlines()[1:]
FORMER = "former_names.py"
"""The names in records of earlier versions, which are not shown."""
WORDS = {pattern: term for pattern, _, term in (line.rpartition(": ") for line in LINES)}


def private_words(text: str) -> list[str]:
    return [
        f"{found.group()!r} is {term}"
        for pattern, term in WORDS.items()
        for found in re.finditer(pattern, text, re.IGNORECASE)
    ]


def helps(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            own = command.get_command(context, name)
            assert own
            yield from helps(own, click.Context(own, info_name=name, parent=context))


def messages(source: str) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings and no single words."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str) and " " in node.value:
            yield node.value


def texts(value: object) -> Iterator[str]:
    """Yield the texts of a file of TOML."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)


def test_help_has_the_terms_of_the_field() -> None:
    for path, text in helps(group, click.Context(group, info_name="losscli")):
        with naming(path):
            assert private_words(text) == []


def test_messages_have_the_terms_of_the_field() -> None:
    for path in sorted((ROOT / "losscli").rglob("*.py")):
        for text in () if path.name == FORMER else messages(path.read_text()):
            with naming(path.relative_to(ROOT), text):
                assert private_words(text) == []
    for path in sorted((ROOT / "losscli").rglob("*.toml")):
        for text in texts(tomllib.loads(path.read_text())):
            with naming(path.relative_to(ROOT), text):
                assert private_words(text) == []


def test_public_docstrings_have_the_terms_of_the_field() -> None:
    for module in (losscli.functional, losscli.nn):
        for name in module.__all__:
            with naming(name):
                assert private_words(prose(inspect.getdoc(getattr(module, name)) or "")) == []
    for docstring in (losscli.patch, losscli.load, judge_many, repeat):
        assert private_words(prose(inspect.getdoc(docstring) or "")) == []
    for page in (losses.page(), records.page()):
        assert private_words(prose(page)) == []


def test_titles_of_shipped_configs_have_the_terms_of_the_field() -> None:
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        with naming(path.name):
            tables = yaml.safe_load(path.read_text()).get("tables", ())
            assert private_words("\n".join(table["title"] for table in tables)) == []


OF_NO_PROSE = re.compile(
    r"```.*?```|``[^`]*``|`[^`]*`|\n    [^\n]*"
    r"|\]\([^)]*\)|<!-- mutations.*?<!-- end -->|<!--.*?-->",
    re.DOTALL,
)
"""Code, the targets of links, and what names records or comes from them."""


def prose(page: str) -> str:
    return OF_NO_PROSE.sub("", page)


def test_pages_have_the_terms_of_the_field() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for path in pages:
        with naming(path.name):
            assert private_words(prose(path.read_text())) == []


def test_a_private_word_is_found() -> None:
    assert private_words("The incoming Gradient of class numbers") == [
        "'incoming Gradient' is grad_output",
        "'class numbers' is class indices",
    ]
    assert [*messages("'a docstring'\ndef f(): raise E(f'no {x} beside it', 'word')")] == [
        "no ",
        " beside it",
    ]
