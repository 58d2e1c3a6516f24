"""Reading what people write about a network: `p4de: NVLink3 + EFA 4x100Gb/s per node`, `1 GPU + RDMA NIC (400Gb/s) per node`.

Small b is bits and belongs to network cards; large B is bytes and belongs to NVLink, which the chip's file already knows.
"""

import re
from dataclasses import dataclass

_SPEEDS = {"edr": 100.0, "hdr": 200.0, "ndr": 400.0, "xdr": 800.0}
_RATE = r"(?P<rate>\d+(?:\.\d+)?)\s*(?P<scale>[GT])(?:b(?:/s|ps|it/s|it)?|(?=\s|$|\W))(?!B)"
_SEVERAL = re.compile(r"(?P<count>\d+)\s*[x×]\s*" + _RATE)
_NAMED = re.compile(r"(?P<count>\d+)\s*[x×]\s*(?P<name>EDR|HDR|NDR|XDR)\b", re.IGNORECASE)
_PER_NODE = re.compile(_RATE + r"\s*(?:total\s*)?(?:per|/)\s*(?:node|host|server|instance|machine)")
_BYTES_PER_NODE = re.compile(r"(?P<rate>\d+(?:\.\d+)?)\s*GB/s\s*(?:per|/)\s*(?:node|host|server|instance|machine)")
_ONE = re.compile(_RATE)
_LARGEST_CARD = 800.0
"""Gb/s: a single figure above this is not one card's but a whole node's."""


@dataclass(frozen=True)
class Wires:
    """What a text says: bytes per second out of a node or of one card, and the transport; zero and empty if nothing."""

    node: float = 0.0
    card: float = 0.0
    transport: str = ""

    def egress(self, local: float) -> float:
        """Bytes per second out of a node with `local` chips taking part, each with a card of its own; 0 if not said."""
        return self.node or self.card * local


def read_wires(text: str) -> Wires:
    """What a description of an interconnect says about the network between nodes.

    >>> read_wires("p4de: NVLink3 + EFA 4x100Gb/s per node")
    Wires(node=50000000000.0, card=0.0, transport='efa')
    >>> read_wires("CX7 400Gb/s IB").card, read_wires("p5: NVLink4 + EFA 3200Gb/s per node").node
    (50000000000.0, 400000000000.0)
    >>> read_wires("NVLink4 (450GB/s/dir spec)")
    Wires(node=0.0, card=0.0, transport='')
    """
    text = text[:300]
    transport = _transport(text.lower())
    several = _SEVERAL.search(text)
    if several:
        return Wires(node=int(several["count"][:4]) * _bytes(several), transport=transport)
    named = _NAMED.search(text)
    if named:
        return Wires(node=int(named["count"][:4]) * _SPEEDS[named["name"].lower()] * 1e9 / 8, transport=transport)
    whole = _PER_NODE.search(text)
    if whole:
        return Wires(node=_bytes(whole), transport=transport)
    in_bytes = _BYTES_PER_NODE.search(text)
    if in_bytes:
        return Wires(node=float(in_bytes["rate"]) * 1e9, transport=transport)
    one = _ONE.search(text)
    if one is None:
        return Wires(transport=transport)
    rate = _bytes(one)
    return (
        Wires(card=rate, transport=transport)
        if rate <= _LARGEST_CARD * 1e9 / 8
        else Wires(node=rate, transport=transport)
    )


def _bytes(match: re.Match[str]) -> float:
    return float(match["rate"]) * (1e12 if match["scale"] == "T" else 1e9) / 8


def _transport(text: str) -> str:
    if "efa" in text:
        return "efa"
    if re.search(r"roce|gib\b|ethernet", text):
        return "roce"
    return "ib" if re.search(r"\bib\b|infiniband|\b[nhx]dr\b|\bcx\d", text) else ""


def read_torus(text: str) -> tuple[int, ...]:
    """The sizes of a torus in a text: `v6e-256 16x16 torus`, `Ironwood 2x2x1 ICI`; empty if it names none.

    >>> read_torus("v6e-256 16x16 torus"), read_torus("multislice DCN")
    ((16, 16), ())
    """
    found = re.search(r"(?<![\w.])(\d{1,4}(?:x\d{1,4}){1,2})(?![\w.])", text[:300])
    return tuple(int(size) for size in found[1].split("x")) if found else ()
