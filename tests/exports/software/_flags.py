"""The names that an argparse parser takes, as a table of keys."""

import argparse
import json

KINDS = {int: "int", float: "float", str: "str", bool: "bool"}


def names_of(parser, also_types=None):
    """Every option by its longest spelling of two dashes that was declared first."""
    found = {}
    for action in parser._actions:
        longs = [one for one in action.option_strings if one.startswith("--")]
        if not longs or action.dest == "help":
            continue
        found[longs[0]] = _key(action, longs[0], also_types or {})
    return found


def _key(action, name, also_types):
    key = {}
    spellings = [one for one in action.option_strings if one != name]
    if isinstance(action, argparse.BooleanOptionalAction):
        key |= {"type": "flag", "off": next(one for one in spellings if one.startswith("--no-"))}
        spellings.remove(key["off"])
    elif action.nargs == 0:
        key["type"] = "flag"
    elif action.nargs in ("*", "+") or isinstance(action.nargs, int):
        key["type"] = "list"
    else:
        named = getattr(action.type, "__name__", "")
        key["type"] = KINDS.get(action.type, also_types.get(named, "str"))
    if action.choices:
        listed = sorted(action.choices) if isinstance(action.choices, set | frozenset) else list(action.choices)
        key["choices"] = [one for one in listed if one is not None]
    if spellings:
        key["also"] = spellings
    if type(action.default) in (int, float, str, bool) and not (key["type"] == "flag" and action.default is False):
        key["default"] = action.default if action.default not in (float("inf"), float("-inf")) else str(action.default)
    return key


def parsed(parser, words):
    """What a parser says of words: a namespace, or the error that it would exit with."""

    def fail(message):
        raise ValueError(message)

    parser.error = fail
    return parser.parse_args(words)


def told(table):
    print("\x02" + json.dumps(table))
