"""Names of a software whose arguments are dataclasses (those that Hugging Face's HfArgumentParser reads)."""

import dataclasses
import enum
import typing

KINDS = {bool: "bool", int: "int", float: "float"}


def names(*classes):
    """The fields of dataclasses, each with its type and default where these are plain."""
    table = {}
    for one in classes:
        for field in dataclasses.fields(one):
            default = field.default.value if isinstance(field.default, enum.Enum) else field.default
            key = {"type": _kind(field.type), "default": default if isinstance(default, int | float | str) else None}
            plain = {name: value for name, value in key.items() if value is not None and value != "str"}
            table.setdefault(field.name, plain)
    return table


def _kind(kind):
    kinds = [KINDS[part] for part in (kind, *typing.get_args(kind)) if part in KINDS]
    return kinds[0] if kinds else "str"
