"""Load configs: find files, follow ``extends``, apply the command line to each table."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from losscli.config.fields import read_mapping, read_text
from losscli.config.keys import EXTENDS, FIELDS, PLURALS, TABLE_KEYS, TABLES
from losscli.config.positions import Located, Problems, each, read
from losscli.config.schema import Config, Exclude, LossChoice
from losscli.errors import ConfigError, UsageError, unknown
from losscli.files.reading import shipped
from losscli.losses import LINEAR_LOSSES, LOSSES, find_loss
from losscli.runs.grouping import collected
from losscli.units import format_size

Keys = dict[str, Located]
MERGED = {"inputs", "timing"}
"""Keys whose mappings merge with the parent's, key by key."""


def shipped_configs() -> dict[str, Path]:
    """Return the shipped configs by name, sorted."""
    return {path.stem: path for path in sorted(shipped("the configs", "configs").glob("*.yaml"))}


def load_config(path: str | None, overrides: Mapping[str, object]) -> Config:
    """Load a file, a shipped config by name, or the default; a ConfigError names the place.

    ``overrides`` replace the file's fields; ``losses`` has names, which keep the file's parameters.
    """
    return load(path, overrides)[0]


def load(path: str | None, overrides: Mapping[str, object]) -> tuple[Config, Keys, list[Keys]]:
    """Load a config, its keys as written, and those of each table; see :func:`load_config`."""
    bare = [Path(f"{path}.yaml")] if path and Path(path).name == path else []
    file = shipped_configs()["default"] if path is None else _find(path, Path(path), *bare)
    problems = Problems()
    keys = _follow(file, (), problems)
    written = _tables(keys.pop(TABLES), problems) if TABLES in keys else []
    tables = [_over(keys, table) for table in written]
    with problems.caught():
        config, *blocks = each((keys, *tables), _config)
    problems.raise_any()
    config = replace(config, tables=tuple(blocks))
    for given in (keys, *written):
        if "tolerances" in given and given["tolerances"].file == str(file):
            _check_tolerances(config, given["tolerances"])
    config = config.changed(lambda block: _override(block, overrides))
    if not all(block.sizes for block in config.blocks):
        message = "no sizes. Add `sizes: [1024x1024]` to the file or --size to the command."
        raise ConfigError(message, file=str(file))
    _check_sizes(config)
    return config, keys, tables


def _check_sizes(config: Config) -> None:
    blocks = [(block.losses, block.sizes) for block in config.blocks]
    asked = ((loss.name, size) for losses, sizes in blocks for loss in losses for size in sizes)
    for name, given in collected(asked).items():
        spec = find_loss(name)
        if not any(map(spec.takes, given)):
            wrong = ", ".join(map(format_size, sorted({*given})))
            said = f"{name} takes sizes of {spec.size_example}, but is given {wrong}."
            raise UsageError(f"{said} Add one with --size.")


def _config(keys: Keys) -> Config:
    values = dict(each(keys.items(), lambda item: (item[0], FIELDS[item[0]].read(item[1]))))
    config = Config(**values)
    return config if config.losses else replace(config, losses=tuple(map(LossChoice, LOSSES)))


def _tables(node: Located, problems: Problems) -> list[Keys]:
    example = "{title: Large, sizes: 32Kx32K}"
    tables: dict[object, Keys] = {}
    with problems.caught():
        if not isinstance(node.value, list) or not node.value:
            node.fail(f"expected a list of tables such as {example}, found {node.describe()}.")
        for item in node.value:
            with problems.caught():
                known = dict.fromkeys(TABLE_KEYS, lambda node: node)
                keys = read_mapping(item, f"a table such as {example}", known)
                if "title" not in keys:
                    item.fail(f"a table has no title. Add one, as in {example}.")
                if (title := FIELDS["title"].read(keys["title"])) in tables:
                    message = f"another table has the title '{title}'. Change one of them."
                    keys["title"].fail(message)
                tables[title] = keys
    return list(tables.values())


def _find(name: str, *candidates: Path) -> Path:
    """Return the first existing candidate, or the shipped config of this name."""
    if not name:
        raise UsageError("the name of the config is empty. Name a YAML file or leave it out.")
    try:
        for candidate in candidates:
            if candidate.exists() and not candidate.is_dir():  # a pipe works too
                return candidate
        is_directory = candidates[0].is_dir()
    except OSError as error:
        raise UsageError(f"config '{name}' cannot be read: {error.strerror}.") from None
    shipped = shipped_configs()
    if (stem := name.removesuffix(".yaml")) in shipped:
        return shipped[stem]
    if is_directory:
        raise UsageError(f"config '{name}' is a directory. Name a YAML file in it.")
    advice = f"Name a YAML file or a shipped config: {', '.join(shipped)}."
    raise UsageError(f"config '{name}' does not exist. {advice}")


def _follow(file: Path, children: tuple[Path, ...], problems: Problems) -> Keys:
    root, known = read(file), (EXTENDS, TABLES, *FIELDS)
    with problems.caught():
        read_mapping(root, "a mapping of keys", dict.fromkeys(known, lambda node: node))
    found = root.value if isinstance(root.value, dict) else {}
    keys = {key: value for key, value in found.items() if key in known}
    if (extends := keys.pop(EXTENDS, None)) is not None:
        with problems.caught():
            parent = _parent(extends, file, children)
            return _over(_follow(parent, (*children, file), problems), keys)
    return keys


def _parent(extends: Located, file: Path, children: tuple[Path, ...]) -> Path:
    if not isinstance(extends.value, str):
        extends.fail(f"expected the name of a config file, found {extends.describe()}.")
    parent = read_text(extends, lambda name: _find(name, file.parent / name))
    chain = (*children, file)
    if any(parent.samefile(child) for child in chain):
        names = " -> ".join(path.name for path in (*chain, parent))
        extends.fail(f"configs extend each other in a circle: {names}. Break it.")
    return parent


def _over(parent: Keys, child: Keys) -> Keys:
    merged = {**parent, **child}
    for key in MERGED & parent.keys() & child.keys():
        below, above = parent[key].value, child[key].value
        if isinstance(below, dict) and isinstance(above, dict):
            kept = {name: value for name, value in below.items() if name not in above}
            merged[key] = replace(child[key], value=kept | above)
    return merged


def _check_tolerances(config: Config, node: Located) -> None:
    from losscli.config.expansion import expand  # cases take a while to import

    cases = {case.name for block in config.blocks for case in expand(block, "cpu")}
    assert isinstance(node.value, dict)
    for case, entry in node.value.items():
        if cases and case not in cases and entry.key is not None:
            close = unknown("case", case, sorted(cases)).partition(" Choose from")[0]
            entry.key.fail(f"{close} `--dry-run` lists the names.")


def _named(rule: Exclude, overrides: Mapping[str, Any]) -> bool:
    """Tell whether the command line names all of a rule's values, apart from the device."""
    wanted = {key: value for key, value in rule.conditions.items() if key != "device"}
    given = {key: overrides.get(PLURALS.get(key, f"{key}s"), ()) for key in wanted}
    return bool(wanted) and all(value in given[key] for key, value in wanted.items())


def _override(config: Config, overrides: Mapping[str, Any]) -> Config:
    changes = dict(overrides)
    changes["exclude"] = tuple(rule for rule in config.exclude if not _named(rule, overrides))
    if "seed" in changes:
        changes["inputs"] = replace(config.inputs, seed=changes.pop("seed"))
    if "losses" in changes:
        # Sizes of hidden states do not apply to other losses.
        linear = {choice.name for choice in config.losses} <= {*LINEAR_LOSSES}
        changes["losses"] = tuple(
            choice
            for name in changes["losses"]
            if name in LINEAR_LOSSES or not linear or "sizes" in overrides
            for choice in [c for c in config.losses if c.name == name] or [LossChoice(name)]
        )
    return replace(config, **changes)
