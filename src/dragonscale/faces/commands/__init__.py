"""The table of commands that answer a question, by what they are for."""

from typing import Any

from dragonscale.faces.command import Command
from dragonscale.faces.commands import facts, physics, planning, proof

_ROWS: list[Command[Any, Any]] = [
    row for module in (planning, physics, facts, proof) for row in vars(module).values() if isinstance(row, Command)
]
COMMANDS = {row.name: row for row in _ROWS if row.examples}
"""By their names on the command line; `dscale` has a few more, which are faces of their own (`cli/table.py`)."""
FUNCTIONS = {row.load.__name__: row for row in _ROWS if row.details}
"""By their names in the library."""
FAMILIES = {
    "explain": "The formula behind any number, with the numbers put in and the crossover solved",
    "validate": "Score predictions against measured runs in a file, or a plan against the log of your own run",
    "run": "The plan as a real JAX program on the devices there are",
}
"""Commands that have commands of their own."""
SHORT = {
    "explain": "`roofline`, `collective` and `shard` are commands too: the times without the derivation",
    "export": "`import` reads what others wrote as a plan, and so does every --plan",
}
"""What the overview says of commands that it does not list, by the command that it lists instead."""
BESIDE = ("roofline", "collective", "shard", "import")
"""Commands that the overview leaves to the ones of `SHORT`."""
