"""What published measurements mean by their words: the tables of `dialects.toml` and the few
functions that read them."""

import functools
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from dragonscale.evidence.rows import Row


@functools.cache
def words(kind: str) -> dict[str, Any]:
    """A table of `dialects.toml`."""
    text = (resources.files("dragonscale.evidence") / "dialects.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)[kind]


def meaning(pairs: Sequence[tuple[str, str]], text: str) -> str:
    """What the first pattern that is found in a text stands for; empty if none is.

    >>> meaning(words("training")["stacks"], "nanotron docs/performance.md")
    'nanotron'
    """
    return next((meant for pattern, meant in pairs if re.search(pattern, text)), "")


def hint(row: Row, name: str) -> str:
    """What a row says under one of the `hints`: the number in it, or the words themselves; empty if
    nothing.

    >>> hint({"notes": "ZeRO-2, 320 prompts"}, "zero"), hint({"notes": ""}, "ring")
    ('2', '')
    """
    columns, pattern = words("hints")[name]
    found = re.search(pattern, " ".join(row[column] for column in columns))
    return next((part for part in found.groups() if part), found[0]) if found else ""


@dataclass(frozen=True)
class StatedNetwork:
    """What a text says: bytes per second out of a node or of one card, and the transport; zero and
    empty if nothing."""

    node: float = 0.0
    card: float = 0.0
    transport: str = ""

    def egress(self, local: float) -> float:
        """Bytes per second out of a node with `local` chips taking part, each with a card of its
        own; 0 if not said."""
        return self.node or self.card * local


def read_network(text: str) -> StatedNetwork:
    """What a description of an interconnect says about the network between nodes.

    >>> read_network("p4de: NVLink3 + EFA 4x100Gb/s per node")
    StatedNetwork(node=50000000000.0, card=0.0, transport='efa')
    >>> read_network("CX7 400Gb/s IB").card, read_network("p5: NVLink4 + EFA 3200Gb/s per node").node
    (50000000000.0, 400000000000.0)
    >>> read_network("NVLink4 (450GB/s/dir spec)")
    StatedNetwork(node=0.0, card=0.0, transport='')
    """
    text, known = text[:300], words("network")
    transport = meaning(known["transports"], text.lower())
    for pattern in known["rates"]:
        if found := re.search(pattern, text):
            return StatedNetwork(node=_bytes(found, known["named"]), transport=transport)
    found = re.search(known["one"], text)
    rate = _bytes(found, known["named"]) if found else 0.0
    if rate > known["largest_card"]:
        return StatedNetwork(node=rate, transport=transport)
    return StatedNetwork(card=rate, transport=transport)


def _bytes(match: re.Match[str], named: dict[str, float]) -> float:
    said = match.groupdict()
    if said.get("bytes"):
        return float(said["bytes"]) * 1e9
    if said.get("name"):
        return int(said["count"]) * named[said["name"].lower()]
    return int(said.get("count") or 1) * (float(said["rate"]) * (1e12 if said["scale"] == "T" else 1e9) / 8)


def read_torus(text: str) -> tuple[int, ...]:
    """The sizes of a torus in a text: `v6e-256 16x16 torus`, `Ironwood 2x2x1 ICI`; empty if it
    names none.

    >>> read_torus("v6e-256 16x16 torus"), read_torus("multislice DCN")
    ((16, 16), ())
    """
    found = re.search(words("network")["torus"], text[:300])
    return tuple(int(size) for size in found[1].split("x")) if found else ()
