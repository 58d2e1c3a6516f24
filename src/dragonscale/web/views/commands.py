"""A command line that the planner suggests, as the fields of a tab: what `Next` of an answer opens.

>>> fields_of_command("dscale simulate llama3-8b --on h100:1 --rate 4/s --capacity")
{'model': 'llama3-8b', 'on': 'h100:1', 'rate': '4/s', 'capacity': True}
"""

import shlex
from typing import Any

from dragonscale.faces.cli.mcp.tools import tools


def fields_of_command(line: str) -> dict[str, Any]:
    """The fields that a command line of ours sets."""
    words = shlex.split(line)[1:]
    if not words:
        return {}
    fields = tools()[words[0]].fields()
    flags, places = {field.flag: field for field in fields}, (field for field in fields if field.place)
    found: dict[str, Any] = {}
    rest = iter(words[1:])
    for word in rest:
        field = flags.get(word)
        if field is not None:
            found[field.name] = True if field.switch else next(rest)
        elif not word.startswith("--"):
            found[next(places).name] = word
    return found
