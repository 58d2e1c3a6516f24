"""Slices in the words of clouds and operators: rented machines (`4xp5.48xlarge`) and sites over a WAN
(`h100:512*2@100Gb/s`), rewritten as `CHIP:TOPOLOGY`.

>>> [as_slice(text) for text in ("p5.48xlarge", "4xStandard_ND96isr_H100_v5", "ct5p-hightpu-4t", "dgx h100", "h100:8")]
['h100:8', 'h100:32', 'v5p:2x2x1', 'h100:8', 'h100:8']
>>> as_slice("h100:512*2@100Gb/s")
'h100+wan=512@100Gb/s:1024'
"""

import functools
import re

from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import whole_match
from dragonscale.tables import beside

_SITES = re.compile(r"(?P<chip>[^:*@]+):(?P<each>[0-9]{1,9})\*(?P<sites>[0-9]{1,9})@(?P<rate>[^@:*]+)")
_MACHINES = re.compile(r"(?:(?P<count>[0-9]{1,9}) ?[xX×] ?)?(?P<name>[A-Za-z][\w. -]*)")


@functools.cache
def machines() -> dict[str, str]:
    """The slice of each machine that has a name."""
    return beside(__file__, "machines.toml")["machines"]


def as_slice(text: str) -> str:
    """`CHIP:TOPOLOGY` for text that names machines or several sites; other text unchanged."""
    written = text.strip()
    if sites := _SITES.fullmatch(written):
        chips = int(sites["each"]) * int(sites["sites"])
        return f"{sites['chip']}+wan={sites['each']}@{sites['rate']}:{chips}"
    match = whole_match(_MACHINES, written)
    if match is None:
        return text
    # Azure's names start with Standard_
    name = match["name"].strip().lower().removeprefix("standard_").replace(" ", "-")
    machine = machines().get(name)
    if machine is None:
        return text
    count = int(match["count"] or 1)
    if count == 1:
        return machine
    chip, _, shape = machine.partition(":")
    if not shape.isdigit():  # machines of a torus may be joined to slices of several shapes
        raise InputError(f"{shorten(written)} is {count} machines of {machine}; name the slice that they form.")
    return f"{chip}:{count * int(shape)}"
