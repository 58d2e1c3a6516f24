"""The `dscale` command."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. 0 ok, 1 a fault of the planner, 2 wrong input, 3 infeasible, 4 target
    missed, 130 Ctrl-C."""
    try:
        from dragonscale.faces.cli.app import run

        code = run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        code = 130
    if arguments is None:
        sys.exit(code)
    return code
