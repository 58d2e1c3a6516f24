"""Tokens on their way to experts and back, as DeepEP reports them: an AllToAll whose bytes follow from the tokens."""

import re
from dataclasses import replace

from dragonscale.collectives.cost import Options
from dragonscale.collectives.group import Group, Switches
from dragonscale.collectives.profile_file import profile_for
from dragonscale.evidence.collective_case import Case, Skip, identity, ranks, switched
from dragonscale.evidence.interconnect import Wires
from dragonscale.evidence.score import number
from dragonscale.hardware import Chip


def moe_case(row: dict[str, str], place: int, chip: Chip, wires: Wires) -> Case:
    """Tokens to and from their experts: an AllToAll. Low-latency kernels send each token to each of its experts; the
    others send it once to each node and let the node pass it on, both at the same time."""
    notes = row["notes"].lower()
    tokens, hidden = _said(r"([\d,]+)\s*tokens", notes), _said(r"hidden\s*([\d,]+)", notes)
    picks, groups = _said(r"top-(\d+)(?!\d|\s*groups)", notes), _said(r"top-(\d+)\s*groups", notes)
    if not (tokens and hidden and picks):
        raise Skip("tokens, hidden size or experts per token not stated")
    size = ranks(row)
    group, across = switched(row, chip, size, wires)
    bytes_each = hidden * _moe_bytes(row["collective"].lower(), row["dtype"].lower())
    once = picks * tokens * bytes_each
    time, logical = number(row["time_us"]), _said(r"([\d.]+)\s*gb/s", row["other_metric"].lower())
    if "low" in row["source"].lower() or groups is None:
        parts: tuple[tuple[float, Group], ...] = ((size * once, group),)
        counted = once
    else:
        parts, counted = _by_node(group, size, tokens * bytes_each, picks, groups)
    if time is None and logical is None:
        raise Skip("neither a time nor a bandwidth stated")
    seconds = time / 1e6 if time is not None else counted / (logical or 1.0) / 1e9
    profile = profile_for(chip, wires.transport or "ib", "deepep")
    network = f"deepep {(profile.fabric if across else profile.domain).name}"
    return Case(identity(row, place), row["source"], network, "all_to_all", parts, profile, Options(), seconds, counted)


def _by_node(
    group: Switches, size: int, token_bytes: float, picks: float, groups: float
) -> tuple[tuple[tuple[float, Group], ...], float]:
    """One copy of a token for each node among its experts' (at most `groups` nodes), then one for each rank."""
    node, *fabric = group.levels
    inside = token_bytes * _distinct(picks, size)
    if not fabric:
        return ((size * inside, group),), inside
    local = node.degree
    nodes = size // local
    between = token_bytes * _distinct(picks, min(nodes, groups))
    card = replace(fabric[0], bandwidth=fabric[0].bandwidth / local)
    rail = Switches(nodes, (replace(node, degree=1), card))
    return ((local * inside, Switches(local, (node,))), (nodes * between, rail)), between


def _distinct(picks: float, places: float) -> float:
    """How many of `places` random picks hit."""
    return places * (1 - (1 - 1 / places) ** picks)


def _said(pattern: str, text: str) -> float | None:
    found = re.search(pattern, text)
    return number(found[1]) if found else None


def _moe_bytes(name: str, dtype: str) -> float:
    """Bytes of one element on the wire; fp8 comes with a 4-byte scale for every 128."""
    stated = dtype
    if "/" in dtype:
        stated = next((part for part in dtype.split("/") if name.removeprefix("moe_") in part), "")
    if "fp8" in stated:
        return 1 + 4 / 128
    if "bf16" in stated or "fp16" in stated:
        return 2.0
    raise Skip("dtype of the tokens not stated")
