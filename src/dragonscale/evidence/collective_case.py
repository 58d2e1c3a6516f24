"""A measured collective in the model's terms, and the parts of a row that say which chips it ran on."""

import math
import re
from dataclasses import dataclass, replace

from dragonscale.collectives.cost import Options
from dragonscale.collectives.group import Group, Switches
from dragonscale.collectives.profile import Profile
from dragonscale.errors import InputError
from dragonscale.evidence.interconnect import Wires
from dragonscale.evidence.score import number
from dragonscale.hardware import Chip, load_chip

LARGE = 2**20
"""Bytes above which a message counts as large."""

_NAMES = {
    r"all_?reduce|psum(?!_scatter)": "all_reduce", r"all_?gather": "all_gather",
    r"reduce_?scatter|psum_scatter": "reduce_scatter", r"all_?to_?all|a2a": "all_to_all",
    r"send_?recv|p?permute|collective_permute|device_to_device_copy": "permute",
    r"moe_(dispatch|combine)": "all_to_all",
}  # fmt: skip


class Skip(Exception):
    """A row that cannot be scored; the message is the reason."""


@dataclass(frozen=True)
class Case:
    """A measured collective in the model's terms. Several `parts` run at the same time, so the slowest counts."""

    id: str
    source: str
    network: str
    kind: str
    parts: tuple[tuple[float, Group], ...]
    profile: Profile
    options: Options
    seconds: float
    message: float


def kind_of(name: str) -> str:
    text = re.sub(r"[\s-]+", "_", name.strip().lower())
    for pattern, kind in _NAMES.items():
        if re.match(pattern, text):
            return kind
    raise Skip(f"no model of the collective {name[:40]!r}" if name else "collective not stated")


def chip_of(text: str) -> Chip:
    words = [text, *re.findall(r"[A-Za-z][\w.-]*", text)]
    found: dict[str, Chip] = {}
    for word in words:
        try:
            chip = load_chip(word) if word and not word.endswith(".toml") else None
        except InputError:
            continue
        if chip:
            found[chip.name] = chip
    if len(found) != 1:
        raise Skip("chip not stated or more than one" if not text or found else f"unknown chip {text[:40]!r}")
    return next(iter(found.values()))


def count(row: dict[str, str], column: str) -> int | None:
    value = number(row.get(column))
    return int(value) if value is not None and value == int(value) else None


def identity(row: dict[str, str], place: int) -> str:
    return row.get("id") or f"row {place}"


def ranks(row: dict[str, str]) -> int:
    nodes, local = count(row, "n_nodes"), count(row, "ranks_per_node")
    size = count(row, "n_ranks") or (nodes * local if nodes and local else None)
    if size is None:
        raise Skip("number of ranks not stated")
    if size < 2:
        raise Skip("a single rank")
    if nodes and local and nodes * local != size:
        raise Skip("ranks, nodes and ranks per node disagree")
    return size


def switched(row: dict[str, str], chip: Chip, size: int, wires: Wires) -> tuple[Switches, bool]:
    """The group under the chip's switches, and whether it leaves its node or rack."""
    node, fabric = chip.network.levels[0], chip.network.levels[1:]  # pyright: ignore[reportAttributeAccessIssue]
    nodes, stated = count(row, "n_nodes"), count(row, "ranks_per_node")
    local = stated or (math.ceil(size / nodes) if nodes else min(size, node.degree))
    rack = node.degree > chip.host_chips or node.degree > 8
    if rack and not wires.node:
        # A rack of trays is one domain: its trays are not nodes of the network.
        local = math.ceil(size / math.ceil(size / node.degree))
    local = min(local, size)
    if nodes == 1 or local >= size:
        if size > node.degree:
            raise Skip(f"more ranks than a node of {chip.title} holds")
        return Switches(size, (node,)), False
    if local > node.degree:
        raise Skip(f"more ranks in a node than a node of {chip.title} holds")
    if not fabric:
        raise Skip(f"no network between nodes known for {chip.title}")
    egress = wires.egress(local) or fabric[0].bandwidth * local / node.degree
    between = replace(fabric[0], degree=0, bandwidth=egress)
    return Switches(size, (replace(node, degree=local), between)), True
