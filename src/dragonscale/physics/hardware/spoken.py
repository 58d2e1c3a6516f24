"""Slices as people write them: machines by the names of clouds (`4xp5.48xlarge`), sites over a WAN
(`h100:512*2@100Gb/s`).

>>> [spelled(text) for text in ("p5.48xlarge", "4xStandard_ND96isr_H100_v5", "ct5p-hightpu-4t", "dgx h100", "h100:8")]
['h100:8', 'h100:32', 'v5p:2x2x1', 'h100:8', 'h100:8']
>>> spelled("h100:512*2@100Gb/s")
'h100+wan=512@100Gb/s:1024'
"""

import functools
import re

from dragonscale.errors import InputError, shorten
from dragonscale.tables import beside

_SITES = re.compile(r"(?P<chip>[^:*@]+):(?P<each>[0-9]{1,9})\*(?P<sites>[0-9]{1,9})@(?P<rate>[^@:*]+)")
_SEVERAL = re.compile(r"(?:(?P<count>[0-9]{1,9}) ?[xX×] ?)?(?P<name>[A-Za-z][\w. -]*)")


@functools.cache
def machines() -> dict[str, str]:
    """The slice of each machine that has a name."""
    return beside(__file__, "machines.toml")["machines"]


def spelled(text: str) -> str:
    """`CHIP:TOPOLOGY` for what is written as machines or as several sites; anything else as it is."""
    written = text.strip()
    if sites := _SITES.fullmatch(written):
        chips = int(sites["each"]) * int(sites["sites"])
        return f"{sites['chip']}+wan={sites['each']}@{sites['rate']}:{chips}"
    match = _SEVERAL.fullmatch(written) if len(written) < 100 else None
    found = (
        machines().get(re.sub(r"[ ]", "-", match["name"].strip().lower().removeprefix("standard_"))) if match else None
    )
    if match is None or found is None:
        return text
    chip, _, shape = found.partition(":")
    count = int(match["count"] or 1)
    if count == 1:
        return found
    if not shape.isdigit():
        raise InputError(f"{shorten(written)} is {count} machines of {found}; name the slice that they form.")
    return f"{chip}:{count * int(shape)}"
