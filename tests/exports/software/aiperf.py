"""AIPerf's own command line: its names, and whether it takes what is exported."""

import enum
import json
import sys
import typing
from importlib.metadata import version
from typing import Any

# This file has the package's name: it must not stand before it.
sys.path = [one for one in sys.path if not one.endswith("tests/exports/software")]

from aiperf.cli_commands.profile import app  # noqa: E402

PLAIN = {int: "int", float: "float", bool: "flag"}


def names() -> dict[str, dict[str, Any]]:
    """Every option of `aiperf profile`, its shortest long spelling the name that people type."""
    found: dict[str, dict[str, Any]] = {}
    for one in app.assemble_argument_collection(parse_docstring=False):
        spelt = [name for name in one.names if name.startswith("-")]
        if not spelt or spelt == ["--cli-config"]:
            continue
        off = [name for name in spelt if name.startswith("--no-")]
        on = [name for name in spelt if name not in off] or spelt
        key: dict[str, Any] = {"type": PLAIN.get(one.hint, "str")}
        if isinstance(one.hint, type) and issubclass(one.hint, enum.Enum):
            key["choices"] = [str(member.value) for member in one.hint]
        elif typing.get_origin(one.hint) is typing.Literal:
            key["choices"] = list(typing.get_args(one.hint))
        elif one.hint is list or typing.get_origin(one.hint) is list:
            key["type"] = "list"
        if on[1:]:
            key["also"] = on[1:]
        if off and key["type"] == "flag":
            key["off"] = off[0]
        found[on[0]] = key
    return found


def check(case: dict[str, Any]) -> str | None:
    """What its parser and its config say of a command."""
    from aiperf.config.flags.resolver import resolve_config

    if case["words"][:2] != ["aiperf", "profile"]:
        return None
    try:
        _, bound, _ = app.parse_args(case["words"][2:], exit_on_error=False, print_error=False)
        resolve_config(bound.arguments["cli_config"])
    except Exception as error:  # whatever it raises is the verdict
        return str(error)
    return None


def main() -> None:
    if sys.argv[1] == "keys":
        source = "the package aiperf from the index: the options of `aiperf profile`"
        out: Any = {"software": "AIPerf", "version": version("aiperf"), "source": source, "keys": names()}
    else:
        out = [check(case) for case in json.load(sys.stdin)]
    sys.stdout.write("\x02" + json.dumps(out))


if __name__ == "__main__":
    main()
