"""A csrc and compilers that stand in for the real ones: shell scripts, done in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from losscli.extension.build import Outcome, ensure
from losscli.extension.cache import Cache
from losscli.extension.plan import Plan, TorchInstall, cpu_plan, cuda_plan
from losscli.extension.toolchain import Tool

SOURCES = {
    "losses.h": "#define LOSSCLI_FOR_EACH_LOSS(X) \\\n  X(alpha) \\\n  X(beta)\n",
    "binding/ops.cpp": "binding",
    "cpu/engine.h": "header",
    "cpu/instantiate.cpp": "cpu",
    "cuda/engine.cu": "engine",
    "cuda/instantiate.cu": "cuda",
}

GCC_VERSION = "g++ (Stand-in) 12.2.0\nCopyright (C) Free Software Foundation, Inc."
NVCC_VERSION = "Cuda compilation tools, release 13.0, V13.0.88"

# Writes its own command line to its output, and that output's name to the file `calls`. All objects
# depend on losses.h, those of cpu/ on cpu/engine.h too. A source that contains `error:` fails by
# printing itself; cpu/blocked.cpp waits for the other end of the pipe `pipe` to be closed.
_COMPILER = """\
#!/bin/sh
command="$*"
if [ "$1" = --version ]; then
  cat <<'EOF'
{version}
EOF
  exit
fi
while [ $# -gt 0 ]; do
  case "$1" in
    -c) source=$2 ;;
    -o) output=$2 ;;
    -MF) depfile=$2 ;;
  esac
  shift
done
echo "$output" >> {root}/calls
if [ -n "$source" ] && grep 'error:' "$source" >&2; then exit 1; fi
case "$source" in
  *.cu) echo "ptxas info    : Compiling entry function '$output' for 'sm_90'" ;;
  */blocked.cpp) exec cat {root}/pipe ;;
esac
case "$source" in *.cu) echo "ptxas info    : Used 8 registers" ;; esac
case "$source" in csrc/cpu/*) header=csrc/cpu/engine.h ;; esac
[ -z "$depfile" ] || echo "$output: $source csrc/losses.h $header" > "$depfile"
echo "$command" > "$output"
"""


def write_program(path: Path, text: str) -> Path:
    """Write a script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@dataclass
class Standin:
    """A workshop in a folder: csrc, a compiler of each kind, a cache."""

    root: Path
    notes: list[str] = field(default_factory=list)
    """What builds told."""
    steps: list[str] = field(default_factory=list)
    """ninja's status lines."""

    def __post_init__(self) -> None:
        for name, text in SOURCES.items():
            self.write(name, text)
        for name, version in (("g++", GCC_VERSION), ("nvcc", NVCC_VERSION)):
            write_program(self.root / name, _COMPILER.format(version=version, root=self.root))

    @property
    def csrc(self) -> Path:
        return self.root / "csrc"

    @property
    def cache(self) -> Cache:
        return Cache(self.root / "cache")

    def write(self, name: str, text: str) -> None:
        """Write a source."""
        path = self.csrc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cpu_plan(
        self, compiler: str = GCC_VERSION, torch: str = "2.13.0", abi: bool = True
    ) -> Plan:
        tool = Tool((str(self.root / "g++"),), compiler)
        return cpu_plan(self.csrc, tool, TorchInstall(torch, self.root / "torch", None, abi))

    def cuda_plan(
        self, nvcc: str = NVCC_VERSION, gencode: tuple[str, ...] = ("-gencode=arch=sm_90",)
    ) -> Plan:
        return cuda_plan(self.csrc, Tool((str(self.root / "nvcc"),), nvcc), "g++", gencode)

    def ensure(self, plan: Plan, *, force: bool = False) -> Outcome:
        """Build a plan in this workshop's cache."""
        return ensure(
            plan, self.cache, force=force, notify=self.notes.append, progress=self.steps.append
        )

    def compiled(self) -> list[str]:
        """Return the outputs that compilers were called for since the last look."""
        calls = self.root / "calls"
        outputs = calls.read_text().split() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return outputs

    def published(self) -> list[Path]:
        """Return the folders of finished libraries."""
        return sorted(self.cache.root.glob("c*-*"))
