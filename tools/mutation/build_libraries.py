"""Build some of a copy's libraries: `python -m tools.mutation.build_libraries TARGETS`.

TARGETS is JSON, a list of objects with the fields of losscli.build.targets.Target.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict

from losscli.build.builder import Builder
from losscli.build.cache import user_cache
from losscli.build.compilers import Compilers
from losscli.build.plan import csrc_root, installed_torch
from losscli.build.targets import Target
from losscli.errors import BuildError, UnfitError


def main() -> int:
    targets = [Target(**fields) for fields in json.loads(sys.argv[1])]
    builder = Builder(Compilers(installed_torch()), user_cache(), csrc_root(), print)
    try:
        builder.obtain(targets)
    except (BuildError, UnfitError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def command(targets: Iterable[Target]) -> list[str]:
    fields = json.dumps([asdict(target) for target in targets])
    return [sys.executable, "-m", "tools.mutation.build_libraries", fields]


if __name__ == "__main__":
    raise SystemExit(main())
