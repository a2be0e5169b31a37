"""Third-party implementations, read here and imported by workers."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.util import resolve_name
from itertools import chain
from os.path import isfile
from pathlib import Path
from typing import Self

from losscli.errors import UsageError
from losscli.files.reading import SOURCE_BYTES, path_of_module, read_bytes
from losscli.implementations import definitions, extension
from losscli.implementations.call_expression import check_names, names_in
from losscli.implementations.definitions import Definition, NotJudgeableError, Parsed, Signature
from losscli.implementations.languages import LANGUAGES, version_of
from losscli.losses import EVERY_LOSS, Spec
from losscli.machine.commits import content_at
from losscli.reasons import Code, Reason

MODULE = "ModelNew"
REFERENCE_MODULE = "Model"
_FORMS = "FILE.py, FILE.cu, FILE.cpp, FILE.py:NAME, FILE.py@REVISION or PACKAGE.MODULE:NAME"
_PATTERN = re.compile(
    r"^(?P<path>.+?\.(?:py|cu|cpp|cc|cxx))(?:@(?P<revision>[^:@]+))?(?::(?P<name>\w+))?$"
)
_INSTALLED = re.compile(
    r"^(?P<module>[^\W\d]\w*(?:\.(?!(?:py|cu|cpp|cc|cxx):)\w+)+):(?P<name>\w+)$"
)


@dataclass(frozen=True)
class Source:
    """A named file with its content, read once."""

    named: str
    path: Path
    revision: str
    name: str
    """The function or class; empty to find it."""
    data: bytes
    call: str = ""
    """An expression over the loss's operands that calls it; empty to find it."""
    reduction: str = field(default="mean", compare=False)
    """Its reduction if it takes none."""
    parameters: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Its parameters of the loss if it takes none."""

    @classmethod
    def read(cls, named: str) -> Self:
        """Read a file for a worker; see :meth:`find`. UsageError also if the path is not UTF-8."""
        found = cls.find(named)
        try:
            str(found.path.absolute()).encode()
        except UnicodeEncodeError:
            text = f"the path '{found.path.absolute()}' is not UTF-8 in this locale"
            mend = "Rename the file or its folder, or set PYTHONUTF8=1."
            raise UsageError(f"{text}. {mend}") from None
        return found

    @classmethod
    def find(cls, named: str) -> Self:
        """Read a file, perhaps at a revision, or an installed module; UsageError if none."""
        if installed := _INSTALLED.match(named):
            path = path_of_module(installed["module"])
            return cls(named, path, "", installed["name"], _now(path))
        match = _PATTERN.match(named)
        if not match:
            raise UsageError(f"expected {_FORMS}, given '{named}'.")
        path, revision = Path(match["path"]), match["revision"] or ""
        data = content_at(path, revision) if revision else _now(path)
        return cls(named, path.absolute(), revision, match["name"] or "", data)

    @property
    def module(self) -> str:
        """The installed module; empty for a file."""
        found = _INSTALLED.match(self.named)
        return found["module"] if found else ""

    def called(self, expression: str) -> Self:
        """Return the source with an expression that calls it; NotJudgeableError if invalid."""
        if expression:
            names_in(expression)
        return replace(self, call=expression)

    def check_call(self, expression: str, loss: str) -> None:
        """Raise UsageError if it is no expression, or has a name that neither file nor loss has."""
        names_in(expression)
        # The verdict on the file says what is wrong with it.
        with suppress(NotJudgeableError, SyntaxError, ValueError, RecursionError):
            check_names(expression, self.program, loss)

    def having(self, reduction: str, parameters: Mapping[str, float]) -> Self:
        """Return the source with the reduction and parameters that it has if it takes none."""
        return replace(self, reduction=reduction or self.reduction, parameters=parameters)

    def of_module(self, name: str) -> Self:
        """Return the source of a function or class, unless it is named already."""
        return self if self.name else replace(self, name=name, named=f"{self.named}:{name}")

    @cached_property
    def sha256(self) -> str:
        """The digest of the content."""
        import hashlib  # only here: commands that read no file start faster

        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def text(self) -> str:
        """The text; NotJudgeableError if the content is not text."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            told = f"{self.named} is not a source file: it is not UTF-8."
            raise NotJudgeableError(Code.SYNTAX, told) from None

    @cached_property
    def program(self) -> str:
        """The Python that a worker imports; for C++, a program that compiles and calls it."""
        return self.text if self.path.suffix == ".py" else extension.program(self.text, self.path)

    @cached_property
    def parsed(self) -> Parsed:
        """The definitions and imports; NotJudgeableError if it is not Python."""
        return Parsed.read(self.program, str(path_of(self.named)))

    @property
    def compiles(self) -> bool:
        """Whether it may run a C++ or CUDA compiler."""
        return "cpp_extension" in self.program

    @property
    def languages(self) -> tuple[str, ...]:
        """The imported kernel languages, with versions."""
        used = (one for one in LANGUAGES if one.module in self.parsed.imports)
        return tuple(f"{one.name} {version_of(one.package) or '(not installed)'}" for one in used)

    @property
    def imports_losscli(self) -> bool:
        """Whether it imports losscli, and so needs the cached kernels."""
        return "losscli" in self.parsed.imports

    @property
    def stands_alone(self) -> bool:
        """Whether its text imports and names no file of its folder."""
        folder, parsed = self.path.parent, self.parsed
        modules = {name.lstrip(".") for name in parsed.imports}
        texts = (*parsed.texts, *extension.INCLUDED.findall(self.text))
        return not (
            parsed.names_itself
            or any((folder / f"{m}.py").exists() or (folder / m).is_dir() for m in modules)
            or any(isfile(folder / text) for text in texts)
        )

    def definition(self, loss: str) -> Definition:
        """Return the definition of a loss; NotJudgeableError if none or several fit."""
        parsed = self.parsed
        found = parsed.definitions
        operands = EVERY_LOSS[loss].names if loss in EVERY_LOSS else definitions.PAIR
        told = f"Found: {', '.join(found) or 'no function or module'}."
        if self.call:
            used = names_in(self.call)
            given = tuple(each for each in operands if each in used)
            return Definition("--call", "function", Signature(given, len(given), frozenset(used)))
        if self.module and (self.name not in found or found[self.name].imported):
            return self._defined_elsewhere or Definition(self.name, "function", definitions.UNKNOWN)
        if self.name:
            if self.name not in found:
                text = f"{self.named}: there is no '{self.name}'. {told}"
                raise NotJudgeableError(Code.NOTHING_TO_JUDGE, text)
            return found[self.name]
        names = _function_names(loss)
        forwards = (f"{each}_{forward}" for each in names for forward, _ in definitions.PAIRED)
        known = dict.fromkeys((*names, loss, MODULE, *forwards))
        wanted = [name for name in known if name in found]
        if not wanted and loss in EVERY_LOSS:
            module = EVERY_LOSS[loss].module.__name__
            wanted = [module] if module in found and found[module].kind == "module" else []
        if not wanted:
            wanted = self._losses(self._own, operands) or self._losses(self._public, operands)
        if not wanted:
            function = names[0] if loss else "with the name of a loss"
            text = f"{self.named}: expected a function {function} or a class {MODULE}"
            raise NotJudgeableError(Code.NOTHING_TO_JUDGE, f"{text}. {told}")
        if len(wanted) > 1:
            helpers = set().union(*map(parsed.used_by, [MODULE] if MODULE in wanted else wanted))
            wanted = [name for name in wanted if name == MODULE or name not in helpers] or wanted
        if len(wanted) > 1:
            text = f"{self.named}: several could be meant: {', '.join(wanted)}"
            command = f"losscli judge {self.named}:{wanted[0]}"
            raise NotJudgeableError(Code.AMBIGUOUS, f"{text}. Name one, as in `{command}`")
        return found[wanted[0]]

    @property
    def _public(self) -> list[str]:
        """The names of definitions that take arguments, without those of backward passes."""
        found = self.parsed.definitions
        hidden = {each.backward.name for each in found.values() if each.backward}
        hidden |= {name for name in found if found[name].signature == definitions.NO_ARGUMENTS}
        return [name for name in found if not name.startswith("_") and name not in hidden]

    @property
    def _own(self) -> list[str]:
        return [name for name in self._public if not self.parsed.definitions[name].imported]

    def _losses(self, public: Sequence[str], operands: tuple[str, ...]) -> list[str]:
        """Return the names of those that may be losses, preferably ``X_loss`` functions."""
        found = self.parsed.definitions
        named = {*EVERY_LOSS, *chain.from_iterable(map(_function_names, EVERY_LOSS))}
        others = {REFERENCE_MODULE, "get_inputs", "get_init_inputs", *named}
        losses = [name for name in public if name.endswith("_loss")] or public
        losses = [name for name in losses if name not in others]
        functions = [name for name in losses if found[name].kind == "function"] or losses
        return [n for n in functions if n.endswith("_loss") or found[n].signature.is_loss(operands)]

    def of_only_definition(self) -> Self:
        """Return the source of the only function or module; the source itself if not just one."""
        own = self._own
        if self.name or self.call or len(own) != 1 or own[0] == MODULE:
            return self
        return replace(self, name=own[0])

    @cached_property
    def _defined_elsewhere(self) -> Definition | None:
        origins = self.parsed.origins
        anywhere = [(module, self.name) for module in self.parsed.open_imports]
        package = self.module if self.path.name == "__init__.py" else self.module.rpartition(".")[0]
        for module, name in [origins[self.name]] if self.name in origins else anywhere:
            with suppress(ImportError, UsageError, NotJudgeableError):
                found = Source.find(f"{resolve_name(module, package)}:{name}")
                definition = found.parsed.definitions.get(name)
                if definition is None or definition.imported:
                    definition = found._defined_elsewhere
                if definition:
                    return replace(definition, name=self.name)
        return None

    def unavailable(
        self, loss: str, reduction: str, spec: Spec, parameters: Mapping[str, float]
    ) -> Reason | None:
        """Return why the definition cannot run a case, or None."""
        try:
            definition = self.definition(loss)
            misfit = self.misfit(definition, spec)
        except NotJudgeableError as error:
            return Reason(Code.NOT_APPLICABLE, str(error).rstrip("."))
        wanted = ["reduction"] if reduction != self.reduction and len(spec.reductions) > 1 else []
        for parameter in spec.parameters:
            value, own = parameters.get(parameter.name), self.parameters.get(parameter.name)
            if value not in (None, parameter.default, parameter.absent, own):
                wanted.append(parameter.name)
        if not misfit and (lacks := [name for name in wanted if not definition.takes(name)]):
            misfit = f"{definition.name} takes no {lacks[0]}"
        return Reason(Code.NOT_APPLICABLE, misfit) if misfit else None

    def misfit(self, definition: Definition, spec: Spec, given: tuple[str, ...] = ()) -> str:
        """Return why operands cannot be passed, or an empty string; see Signature.order."""
        signature = signature_for(definition, spec)
        order = signature.order(spec.names, given)
        if lacks := [n for n in spec.names if n not in order and not signature.takes(n)]:
            return f"{definition.name} takes no {lacks[0]}"
        for argument, operand in zip(signature.names, order, strict=False):
            if argument in settings_of(spec):
                named = f"the argument {argument} of {definition.name} is the {operand}"
                return f"{named}, and {spec.name} has a setting of that name: rename it"
        return ""

    def defines(self, name: str) -> bool:
        """Tell whether the file defines a name or compiled module."""
        return name in self.parsed.definitions or name in self.parsed.compiled


def signature_for(definition: Definition, spec: Spec) -> Signature:
    """Return a definition's signature without the loss's settings."""
    operands = sum(not operand.optional for operand in spec.operands)
    return definition.signature.without(settings_of(spec), operands)


def settings_of(spec: Spec) -> set[str]:
    """Return the names of a loss's settings."""
    return {"reduction", *(parameter.name for parameter in spec.parameters)} - {*spec.names}


def is_file(name: str) -> bool:
    """Tell whether an implementation's name is a file or an installed module."""
    return bool(_PATTERN.match(name) or _INSTALLED.match(name))


def path_of(named: str) -> Path:
    """Return a named file's path."""
    match = _PATTERN.match(named)
    return Path(match["path"] if match else named)


def _now(path: Path) -> bytes:
    try:
        return read_bytes(path, SOURCE_BYTES)
    except FileNotFoundError:
        raise UsageError(f"there is no file '{path}'.") from None
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror}.") from None


@cache
def _function_names(loss: str) -> tuple[str, ...]:
    return EVERY_LOSS[loss].function_names if loss in EVERY_LOSS else (f"{loss}_loss",)
