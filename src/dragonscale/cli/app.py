"""The commands and how they are called. Each command's module loads what it needs only when it runs."""

import os
import sys

import cyclopts
from cyclopts import App

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
from dragonscale.errors import Infeasible, InputError

WRONG_INPUT = 2
INFEASIBLE = 3

_HELP = """How a Transformer behaves on TPUs and GPUs, and how to split it over many chips.

Every command takes --json. Text goes to stdout, notes to stderr. Exit codes: 0 ok, 2 wrong input, 3 infeasible,
4 target missed."""


def build() -> App:
    """The application with all its commands."""
    app = App(name="dscale", help=_HELP, help_format="plaintext", version_flags=["--version"], version=_version)
    app.command(chips.run, name="chips")
    app.command(models.run, name="models")
    app.command(roofline.run, name="roofline")
    app.command(shard.run, name="shard")
    app.command(collective.run, name="collective")
    app.command(train.run, name="train")
    app.command(serve.run, name="serve")
    app.command(simulate.run, name="simulate")
    app.command(explain.build())
    app.command(validate.build())
    app.command(run_plan.build())
    app.command(verify.run, name="verify")
    app.command(sweep.run, name="sweep")
    return app


def _version() -> str:
    from importlib.metadata import version

    return version("dragonscale")


def run(arguments: list[str]) -> int:
    """Parse and run; bad input becomes one sentence on stderr and exit code 2."""
    try:
        code = build()(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Infeasible as error:
        return _refuse(str(error), INFEASIBLE)
    except InputError as error:
        return _refuse(str(error))
    except cyclopts.CycloptsError as error:
        error.verbose = False
        return _refuse(f"{' '.join(str(error).split())} See `dscale {_command(arguments)}--help`.")
    except RecursionError:
        return _refuse("The input is nested too deeply to be read.")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _command(arguments: list[str]) -> str:
    known = (
        "chips",
        "models",
        "roofline",
        "shard",
        "collective",
        "train",
        "serve",
        "simulate",
        "explain",
        "validate",
        "run",
        "verify",
        "sweep",
    )
    return f"{arguments[0]} " if arguments and arguments[0] in known else ""


def _refuse(sentence: str, code: int = WRONG_INPUT) -> int:
    print(f"dscale: {sentence}", file=sys.stderr)
    return code
