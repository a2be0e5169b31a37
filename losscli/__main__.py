"""`python -m losscli` is `losscli`."""

import sys

from losscli.cli.main import run

sys.exit(run())
