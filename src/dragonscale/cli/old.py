"""Commands that are not asked by a question yet."""

import functools
from typing import Any

import cyclopts
from cyclopts import App, Parameter

from dragonscale.cli.flags import read_flag
from dragonscale.errors import InputError
from dragonscale.hardware.changes import with_changes

ALONE: dict[str, Any] = {}
FAMILIES: dict[str, Any] = {}
NAMES = (*ALONE, *FAMILIES)


def _with_set(arguments: list[str]) -> list[str]:
    """`--set hbm=2x` brought to the chips of `--on`."""
    words, changes, chips = list[str](), list[str](), list[int]()
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in ("--set", "--on"):
            value = value if equals else next(rest, "")
            if name == "--set":
                changes.append(value)
                continue
            chips.append(len(words))
            word = f"--on={value}"
        words.append(word)
    if changes and not chips:
        raise InputError("--set changes the chips of --on; give --on h100:8, say.")
    for place in chips if changes else ():
        words[place] = f"--on={with_changes(words[place].removeprefix('--on='), ','.join(changes))}"
    return words


@functools.cache
def build() -> App:
    """The application of these commands."""
    shown = Parameter(show_default=lambda value: None if value in ("", None, False) else value, converter=read_flag)
    app = App(name="dscale", help_format="plaintext", default_parameter=shown)
    for name, function in ALONE.items():
        app.command(function, name=name)
    for family in FAMILIES.values():
        app.command(family())
    return app


def run(arguments: list[str]) -> int:
    arguments = _with_set(arguments) if any(word.startswith("--set") for word in arguments) else arguments
    app = build()
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except cyclopts.CycloptsError as error:
        if isinstance(error.__cause__ or error.__context__, InputError):  # a number that `read_flag` refused
            raise InputError(str(error.__cause__ or error.__context__)) from None
        error.verbose = False
        raise InputError(f"{' '.join(str(error).split())} See `dscale {arguments[0]} --help`.") from None
    return code if isinstance(code, int) else 0
