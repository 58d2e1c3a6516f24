"""Answers as JSON on stdout, from the records themselves."""

import json
from typing import Any


def emit_json(record: Any) -> None:
    """Print a record as JSON."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(record), indent=2).decode()
    # JSON lets some control characters stand as they are: as its escapes they mean the same.
    plain = text if text.replace("\n", "").isprintable() else "".join(map(_json_character, text))
    print(plain)


def _json_character(one: str) -> str:
    if one.isprintable() or one == "\n":
        return one
    return json.dumps(one)[1:-1] if one != "\x7f" else "\\u007f"
