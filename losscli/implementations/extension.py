"""Makes a Python module that compiles a C++ or CUDA file and calls its exported functions."""

import re
from keyword import iskeyword
from pathlib import Path

from losscli.implementations.definitions import NotJudgeableError
from losscli.reasons import Code

_MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(")
_LIBRARY = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT)?\s*\(\s*(?P<namespace>\w+)\s*,")
_DEFINED = re.compile(
    r'\.def\(\s*(?:TORCH_SELECTIVE_SCHEMA\()?"(?P<name>\w+)(?:\.\w+)?'
    r'(?:\((?P<schema>[^"]*?)\)\s*->[^"]*)?"\s*(?:,\s*&?\s*(?P<function>[\w:]+))?(?P<rest>[^;]*);'
)
"""``m.def("name", &function, ...);`` of pybind11, or ``m.def("name(Tensor input) -> Tensor");``."""
_ARGUMENT = re.compile(r'\barg\(\s*"(?P<name>\w+)"\s*\)(?:\s*=\s*(?P<default>[-+.\w]+))?')
_FUNCTION = re.compile(
    r"(?<![\w:])(?:(?:at|torch)::Tensor|(?:std::)?(?:vector|tuple)\s*<[^;{}()]*>)\s+"
    r"(?P<name>\w+)\s*\((?P<arguments>[^;{}]*?)\)\s*\{"
)
INCLUDED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CONSTANTS = {"true": "True", "false": "False", "None": "None"}

_PROGRAM = """\
from pathlib import Path
import torch
from torch.utils.cpp_extension import load

_source = Path(__file__).with_suffix({suffix!r})
_source.write_text({text!r}, "utf-8")
_extension = load(
    {name!r}, [str(_source)], extra_include_paths=[{folder!r}], is_python_module={is_module}
)
"""


def program(text: str, path: Path) -> str:
    """Return the Python for a C++ or CUDA file; NotJudgeableError if it exports no function."""
    code = _COMMENT.sub("", text)
    is_module = bool(_MODULE.search(code))
    library = _LIBRARY.search(code)
    functions = {found["name"]: found["arguments"] for found in _FUNCTION.finditer(code)}
    exported = [*_DEFINED.finditer(code)] if is_module or library else []
    if not exported:
        there = ", ".join(functions) or "none that returns a tensor"
        text = f"{path.name} exports no function with PYBIND11_MODULE or TORCH_LIBRARY"
        raise NotJudgeableError(Code.NOTHING_TO_JUDGE, f"{text}; its functions: {there}.")
    holder = "_extension" if is_module or not library else f"torch.ops.{library['namespace']}"
    head = _PROGRAM.format(
        suffix=path.suffix,
        text=text,
        name=re.sub(r"\W", "_", path.stem),
        folder=str(path.parent),
        is_module=is_module,
    )
    return "\n".join([head, *(_wrapper(each, functions, holder) for each in exported)])


def _wrapper(defined: re.Match[str], functions: dict[str, str], holder: str) -> str:
    name = defined["name"]
    arguments = [(a["name"], a["default"]) for a in _ARGUMENT.finditer(defined["rest"])]
    if not arguments and defined["schema"] is not None:
        declared = [each for each in _split(defined["schema"]) if each != "*"]
        arguments = [(_name_of(each), each.partition("=")[2].strip() or None) for each in declared]
    if not arguments:
        declared = _split(functions.get((defined["function"] or "").rpartition("::")[2], ""))
        arguments = [(_name_of(each), None) for each in declared]
    if not arguments or not all(a.isidentifier() and not iskeyword(a) for a, _ in arguments):
        return f"def {name}(*arguments):\n    return {holder}.{name}(*arguments)\n"
    taken = (f"{a}={_python(value)}" if value else a for a, value in arguments)
    passed = ", ".join(argument for argument, _ in arguments)
    return f"def {name}({', '.join(taken)}):\n    return {holder}.{name}({passed})\n"


def _split(arguments: str) -> list[str]:
    """Split declared arguments, whose types may have commas in angle brackets."""
    plain = re.sub(r"<[^<>]*>", "", arguments).split(",")
    return [each.strip() for each in plain if each.strip()]


def _name_of(declared: str) -> str:
    """Return the name in ``const torch::Tensor& input = ...``."""
    return declared.partition("=")[0].strip().rpartition(" ")[2].lstrip("&*")


def _python(value: str) -> str:
    """Return a C++ default in Python; None if it is an unknown constant."""
    number = value.rstrip("fFlL")
    try:
        float(number)
    except ValueError:
        return _CONSTANTS.get(value, "None")
    return number
