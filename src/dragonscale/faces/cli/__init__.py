"""The `dscale` command."""

import contextlib
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from dragonscale.errors import INTERRUPTED, TERMINATED, Terminated


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. 0 ok, 1 a fault of the planner, 2 wrong input, 3 infeasible, 4 target
    missed, 130 Ctrl-C, 143 SIGTERM."""
    try:
        if arguments is None:
            _hear_sigterm()
        from dragonscale.faces.cli.app import run

        code = run(sys.argv[1:] if arguments is None else list(arguments))
    except Terminated:
        code = TERMINATED
        with contextlib.suppress(OSError):  # nobody listens
            print("dscale: SIGTERM stopped the command before its end.", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if arguments is None:
        sys.exit(code)
    return code


def _hear_sigterm() -> None:
    """Let SIGTERM end this process in order. A signal that it was started to ignore stays ignored; servers and training
    runs have handlers of their own."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    del number, frame
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one does not wait
    raise Terminated
