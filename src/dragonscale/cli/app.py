"""The commands and how they are called. Each command's module loads what it needs only when it runs."""

import contextlib
import os
import sys

import cyclopts
from cyclopts import App, Parameter

from dragonscale.cli import (
    chips,
    collective,
    explain,
    models,
    roofline,
    serve,
    shard,
    simulate,
    sweep,
    train,
    validate,
    verify,
)
from dragonscale.cli import run as run_plan
from dragonscale.cli.flags import read_flag
from dragonscale.errors import Infeasible, InputError, printable, shorten

WRONG_INPUT = 2
INFEASIBLE = 3

_HELP = """How a Transformer behaves on TPUs and GPUs, and how to split it over many chips.

Every command takes --json. Text goes to stdout, notes to stderr. Exit codes: 0 ok, 2 wrong input, 3 infeasible,
4 target missed."""


COMMANDS = {
    "chips": chips.run, "models": models.run, "roofline": roofline.run, "shard": shard.run, "collective": collective.run,
    "train": train.run, "serve": serve.run, "simulate": simulate.run, "verify": verify.run, "sweep": sweep.run,
}  # fmt: skip
GROUPS = {"explain": explain.build, "validate": validate.build, "run": run_plan.build}
"""Commands with commands of their own."""


def build() -> App:
    """The application with all its commands."""
    shown = Parameter(show_default=lambda value: None if value in ("", None, False) else value, converter=read_flag)
    app = App(
        name="dscale", help=_HELP, help_format="plaintext", version_flags=["--version"], version=_version,
        default_parameter=shown,
    )  # fmt: skip
    for name, function in COMMANDS.items():
        app.command(function, name=name)
    for group in GROUPS.values():
        app.command(group())
    return app


def _version() -> str:
    from importlib.metadata import version

    return version("dragonscale")


def run(arguments: list[str]) -> int:
    """Parse and run; bad input becomes one sentence on stderr and exit code 2."""
    _prepare_streams()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the answer has read enough
        _silence()
        return 0
    except OSError as error:
        _silence()
        place = f"{shorten(str(error.filename))} cannot be used" if error.filename else "The answer cannot be printed"
        return _refuse(f"{place}: {error.strerror or error}.")
    return code


def _run(arguments: list[str]) -> int:
    try:
        code = build()(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return code if isinstance(code, int) else 0
    except Infeasible as error:
        return _refuse(str(error), INFEASIBLE)
    except InputError as error:
        return _refuse(str(error))
    except cyclopts.CycloptsError as error:
        if isinstance(error.__cause__ or error.__context__, InputError):  # a number that `read_flag` refused
            return _refuse(str(error.__cause__ or error.__context__))
        error.verbose = False
        return _refuse(f"{' '.join(str(error).split())} See `dscale {_command(arguments)}--help`.")
    except RecursionError:
        return _refuse("The input is nested too deeply to be read.")
    except MemoryError:
        return _refuse("This machine's memory is too small for the question.")


def _prepare_streams() -> None:
    """Output that always takes what is printed: a closed stream takes it to nowhere, and a character
    that its encoding lacks is shown as an escape."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed before the start (>&-)
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  as long as the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _silence() -> None:
    """Send what is still to be printed to nowhere, so that the end of the process is quiet too."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(arguments: list[str]) -> str:
    return f"{arguments[0]} " if arguments and arguments[0] in (*COMMANDS, *GROUPS) else ""


def _refuse(sentence: str, code: int = WRONG_INPUT) -> int:
    with contextlib.suppress(OSError):  # nobody listens
        print(f"dscale: {printable(sentence)}", file=sys.stderr, flush=True)
    return code
