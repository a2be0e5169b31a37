"""The functions of core/math.h on the CPU: vectorised, and within their bounds everywhere."""

import ctypes
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from losscli.build.plan import csrc_root, installed_torch, make_plan
from losscli.build.targets import CPU, LOSS, Target
from losscli.build.toolchain import find_compiler

Array = np.ndarray[Any, np.dtype[Any]]

LOOPS = Path(__file__).with_name("vector_loops.cpp")
REALS: dict[str, Any] = {"float": np.float32, "double": np.float64}
WIDE: dict[str, Any] = {"float": np.float64, "double": np.longdouble}
X86 = platform.machine() == "x86_64"


def sigmoid(x: Array) -> Array:
    power = np.exp(-np.abs(x))
    result: Array = np.where(x > 0, 1, power) / (1 + power)
    return result


def softplus(x: Array) -> Array:
    result: Array = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return result


@dataclass(frozen=True)
class Function:
    """What a function computes, and how far off it may be: the figures of core/math.h, in ULP."""

    exact: Callable[[Array], Array]
    bounds: dict[str, float]
    borders: tuple[float, ...]
    """Where the method changes, or the result leaves the range, besides the borders of all."""


EXPONENTIAL_BORDERS = tuple(
    sign * border
    for border in (88.72284, 87.33655, 103.97208, 709.782712893384, 708.3964185322641, 745.13322)
    for sign in (1, -1)
)
HALVES_OF_LOG_TWO = tuple(np.log(2) * half / 2 for half in range(-9, 10))
ROOTS_OF_HALF = tuple(2.0**power * np.sqrt(0.5) for power in (-1074, -1022, -149, -126, -1, 0, 1))

FUNCTIONS = {
    "exponential": Function(np.exp, {"float": 0.8, "double": 0.8}, EXPONENTIAL_BORDERS),
    "exponential_minus_one": Function(
        np.expm1, {"float": 1.1, "double": 1.1}, (*EXPONENTIAL_BORDERS, -17.33, -37.43)
    ),
    "logarithm": Function(np.log, {"float": 0.9, "double": 0.9}, ROOTS_OF_HALF),
    "log_of_one_plus": Function(
        np.log1p, {"float": 1.0, "double": 1.0}, tuple(root - 1 for root in ROOTS_OF_HALF)
    ),
    "hyperbolic_tangent": Function(
        np.tanh, {"float": 0.9, "double": 0.9}, (0.55, -0.55, 9.01, 19.06, 25.0, 54.0)
    ),
    "sigmoid": Function(sigmoid, {"float": 0.8, "double": 0.8}, EXPONENTIAL_BORDERS),
    "softplus": Function(softplus, {"float": 1.1, "double": 1.1}, (*EXPONENTIAL_BORDERS, 25, 54)),
}
EXPONENTS = (0.5, 1.3, 2.0, 5.0, 16.0)
POWER_BOUND = 1.0


def samples(real: str, function: Function) -> Array:
    """All exponents with random digits, the usual range, specials, and both sides of borders."""
    kind = REALS[real]
    draw = np.random.default_rng(14)
    if real == "float":
        anywhere = np.arange(0, 2**32, 2039, dtype=np.uint32).view(kind)
    else:
        anywhere = draw.integers(0, 2**64, 200_000, np.uint64).view(kind)
    usual = draw.uniform(-1, 1, 100_000) * draw.choice([0.1, 1, 4, 40, 700], 100_000)
    limits = np.finfo(kind)
    special = (0, 1, limits.tiny, limits.smallest_subnormal, limits.max, limits.eps, np.inf)
    borders = np.array([*function.borders, *HALVES_OF_LOG_TWO, *special, -1], kind)
    around = [borders, np.array([-value for value in special], kind), np.array([np.nan], kind)]
    for direction in (np.inf, -np.inf):
        neighbours = borders
        for _ in range(100):
            with np.errstate(all="ignore"):
                neighbours = np.nextafter(neighbours, kind(direction))
            around.append(neighbours)
    return np.concatenate([anywhere, usual.astype(kind), *around])


def errors(got: Array, exact: Array) -> Array:
    """How far results are off, in ULP; infinity for a wrong sign, NaN or infinity."""
    kind, wide = got.dtype.type, exact.dtype.type
    rounded = exact.astype(kind)
    limits = np.finfo(kind)
    _, exponent = np.frexp(np.abs(exact))
    # Before rounding: at a power of two the spacing changes.
    unit = np.maximum(exponent - limits.nmant - 1, limits.minexp - limits.nmant)
    distance = np.abs(got.astype(wide) - exact)
    with np.errstate(under="ignore"):
        off = np.ldexp(distance, -unit).astype(np.float64)
    finite = np.isfinite(rounded)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    off = np.where(finite & np.isfinite(got), off, np.where(same, 0, np.inf))
    wrong_sign = (np.signbit(got) != np.signbit(rounded)) & ~np.isnan(rounded)
    result: Array = np.where(wrong_sign, np.inf, off)
    return result


@dataclass(frozen=True)
class Compiled:
    library: ctypes.CDLL
    remarks: str
    """What the compiler said about its optimisations."""

    def run(self, name: str, real: str, values: Array, exponent: float = 0) -> Array:
        pointer = ctypes.c_void_p
        loop = getattr(self.library, f"{name}_{real}")
        loop.argtypes = (pointer, pointer, ctypes.c_int64, ctypes.c_double)
        values = np.ascontiguousarray(values)
        results = np.empty_like(values)
        loop(values.ctypes.data, results.ctypes.data, values.size, exponent)
        return results

    def worst(self, name: str, real: str) -> float:
        function = FUNCTIONS[name]
        values = samples(real, function)
        with np.errstate(all="ignore"):
            exact = function.exact(values.astype(WIDE[real]))
            return float(errors(self.run(name, real, values), exact).max())


def compile_loops(folder: Path, csrc: Path, *instead: str, march: str = "") -> Compiled:
    """Compile the loops as the kernels of a loss are, or for other processors."""
    flags = make_plan(Target(LOSS, CPU, "mse"), csrc_root(), installed_torch()).steps[0].flags
    flags = flags[: flags.index("-include")]  # the loops take the place of the library's files
    if march:
        flags = (*(flag for flag in flags if not flag.startswith("-m")), f"-march={march}")
    library = folder / "loops.so"
    command = [*find_compiler().command, *flags, *instead, "-Wall", "-Wextra", "-Werror"]
    files = [f"-I{csrc}", "-fopt-info-vec-optimized", "-shared", str(LOOPS), "-o", str(library)]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Compiled(ctypes.CDLL(str(library)), done.stderr)


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    """For this processor."""
    return compile_loops(tmp_path_factory.mktemp("native"), csrc_root())


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """For processors with the least that x86-64 or aarch64 has, one element at a time."""
    folder = tmp_path_factory.mktemp("plain")
    least = "x86-64" if X86 else "armv8-a"
    return compile_loops(folder, csrc_root(), "-O1", "-fno-tree-vectorize", march=least)


def assert_vectorised(remarks: str) -> None:
    lines = LOOPS.read_text().splitlines()
    first = lines.index("// begin") + 2
    for line, text in enumerate(lines[first - 1 :], first):
        pattern = rf"vector_loops\.cpp:{line}:\d+: optimized: loop vectorized using (?:16|32|64)"
        assert len(re.findall(pattern, remarks)) >= 2, text


def test_loops_over_the_functions_are_vectorised(native):
    assert_vectorised(native.remarks)


@pytest.mark.skipif(not X86, reason="an instruction set of x86-64")
def test_loops_are_vectorised_for_processors_without_avx(tmp_path):
    # SSE 4.1 is what x86-64-v2 adds that matters here; older GCCs do not know that name.
    assert_vectorised(compile_loops(tmp_path, csrc_root(), "-msse4.1", march="x86-64").remarks)


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_their_bounds(name, real, native):
    assert np.finfo(np.longdouble).nmant > 60, "long double is the reference for double"
    assert native.worst(name, real) <= FUNCTIONS[name].bounds[real]


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_are_within_their_bounds(exponent, real, native):
    kind = REALS[real]
    draw = np.random.default_rng(14)
    uniform = draw.uniform(0, 1, 50_000)
    least = -140 if real == "float" else -1040
    values = np.concatenate(
        [uniform, 1 - uniform**4, np.exp2(least * uniform), [0, 1, np.finfo(kind).tiny]]
    ).astype(kind)
    with np.errstate(all="ignore"):
        exact = np.power(values.astype(WIDE[real]), WIDE[real](exponent))
    assert errors(native.run("power", real, values, exponent), exact).max() <= POWER_BOUND


@pytest.mark.parametrize("real", REALS)
def test_power_at_the_ends_of_its_domain(real, native):
    values = np.array([0, 1, -1, np.nan], REALS[real])
    for exponent, expected in {
        0: (1, 1, 1, 1),
        2: (0, 1, np.nan, np.nan),
        -1: (np.inf, 1, np.nan, np.nan),
    }.items():
        np.testing.assert_array_equal(native.run("power", real, values, exponent), expected)


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("name", [*FUNCTIONS, "power"])
def test_results_are_the_same_bits_on_every_processor(name, real, native, plain):
    function = FUNCTIONS.get(name, FUNCTIONS["logarithm"])
    values = samples(real, function)
    mine, other = (build.run(name, real, values, 1.7) for build in (native, plain))
    np.testing.assert_array_equal(mine, other)
    number = ~np.isnan(mine)
    np.testing.assert_array_equal(np.signbit(mine)[number], np.signbit(other)[number])


@pytest.mark.slow
def test_the_bounds_tell_a_wrong_coefficient(tmp_path):
    csrc = tmp_path / "csrc"
    shutil.copytree(csrc_root() / "core", csrc / "core")
    header = csrc / "core" / "vector_math.h"
    source = header.read_text()
    wrong = {
        "0x1.55551ap-5f": "0x1.55651ap-5f",
        "0x1.11111111109adp-7": "0x1.11111111209adp-7",
        "0x1.997cp-2f": "0x1.99acp-2f",
        "0x1.2492492e08d4cp-2": "0x1.2492493e08d4cp-2",
        "0x1.110ff4p-3f": "0x1.1110f4p-3f",
        "0x1.111111111103cp-3": "0x1.111111112103cp-3",
    }
    for right, other in wrong.items():
        assert source.count(right) == 1, right
        source = source.replace(right, other)
    header.write_text(source)
    broken = compile_loops(tmp_path, csrc)
    for name in ("exponential", "logarithm", "hyperbolic_tangent"):
        for real in REALS:
            assert broken.worst(name, real) > FUNCTIONS[name].bounds[real], (name, real)
