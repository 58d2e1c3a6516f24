"""What a row of measured collectives means: which collective, of how many bytes, over which wires, and the seconds it took.

Conventions of the sources: nccl-tests give the whole buffer (for an AllGather, all that is gathered; for an AllToAll, what
one rank sends); `busbw` is the bytes each rank sends per second; Google's TPU benchmarks report the bytes each chip
receives, or a bandwidth that counts them. A row that does not say what is needed raises `Skip` with the reason.
"""

import itertools
import math
import re
from dataclasses import dataclass, replace

from dragonscale.collectives.cost import Options, wire_bytes
from dragonscale.collectives.group import Group, Ring, Rings, Switches, Wide
from dragonscale.collectives.profile import Profile
from dragonscale.collectives.profile_file import implementations, profile_for
from dragonscale.errors import InputError
from dragonscale.evidence.interconnect import Wires, read_torus, read_wires
from dragonscale.evidence.score import number
from dragonscale.hardware import Chip, Torus, load_chip
from dragonscale.hardware.slices import wraparound

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


def _kind(name: str) -> str:
    text = re.sub(r"[\s-]+", "_", name.strip().lower())
    for pattern, kind in _NAMES.items():
        if re.match(pattern, text):
            return kind
    raise Skip(f"no model of the collective {name[:40]!r}" if name else "collective not stated")


def _chip(text: str) -> Chip:
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


def _count(row: dict[str, str], column: str) -> int | None:
    value = number(row.get(column))
    return int(value) if value is not None and value == int(value) else None


def published_case(row: dict[str, str], place: int) -> Case:
    """A row of published measurements, as in `collectives.csv`."""
    if row["kind"] not in ("collective", "p2p", ""):
        raise Skip(f"not a collective: {row['kind'][:40]}")
    name = row["collective"].lower()
    kind = _kind(row["collective"])
    chip = _chip(row["chip"])
    wires = read_wires(row["interconnect"])
    if re.search(r"moe_(dispatch|combine)", name):
        return _moe_case(row, place, chip, wires)
    if isinstance(chip.network, Torus):
        return _torus_case(row, place, chip, kind)
    size = _ranks(row)
    message = number(row["bytes"])
    if message is None:
        raise Skip("message size not stated")
    volume = message * size if kind == "all_to_all" else message
    seconds = _seconds(row, kind, message, volume, size)
    group, across = _switched(row, chip, size, wires)
    profile = profile_for(chip, wires.transport)
    network = _network(profile, group, across)
    options = Options(in_network=_in_network(row["algorithm"], row["dtype"]))
    return Case(_id(row, place), row["source"], network, kind, ((volume, group),), profile, options, seconds, message)


def _id(row: dict[str, str], place: int) -> str:
    return row.get("id") or f"row {place}"


def _ranks(row: dict[str, str]) -> int:
    nodes, local = _count(row, "n_nodes"), _count(row, "ranks_per_node")
    size = _count(row, "n_ranks") or (nodes * local if nodes and local else None)
    if size is None:
        raise Skip("number of ranks not stated")
    if size < 2:
        raise Skip("a single rank")
    if nodes and local and nodes * local != size:
        raise Skip("ranks, nodes and ranks per node disagree")
    return size


def _seconds(row: dict[str, str], kind: str, message: float, volume: float, size: int) -> float:
    time, algorithm, bus = number(row["time_us"]), number(row["algbw_GBps"]), number(row["busbw_GBps"])
    if time is not None:
        return time / 1e6
    if algorithm is not None:
        return message / (algorithm * 1e9)
    if bus is not None:
        return wire_bytes(kind, volume, size) / (bus * 1e9)
    raise Skip("neither a time nor a bandwidth stated")


def _in_network(algorithm: str, dtype: str) -> bool:
    """Whether switches may add: unless the row says otherwise, for the floating-point types that they can add."""
    stated = algorithm.lower()
    if re.search(r"nvls|sharp|collnet", stated) and "off" not in stated:
        return True
    return not stated and not re.search(r"int|u8|s8|fp8|f8", dtype.lower())


def _switched(row: dict[str, str], chip: Chip, size: int, wires: Wires) -> tuple[Switches, bool]:
    """The group under the chip's switches, and whether it leaves its node or rack."""
    node, fabric = chip.network.levels[0], chip.network.levels[1:]  # pyright: ignore[reportAttributeAccessIssue]
    nodes, stated = _count(row, "n_nodes"), _count(row, "ranks_per_node")
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


def _network(profile: Profile, group: Switches, across: bool) -> str:
    if not across:
        return profile.domain.name
    return profile.rail.name if group.levels[0].degree == 1 else profile.fabric.name


def _torus_case(row: dict[str, str], place: int, chip: Chip, kind: str) -> Case:
    text = f"{row['collective']} {row['interconnect']}".lower()
    message = number(row["bytes"])
    if message is None:
        raise Skip("message size not stated")
    group, size = _pods(row, chip) if "dcn" in text or "multislice" in text else _rings(row, chip)
    volume = message
    if "transferred" in row["bytes_meaning"].lower():
        volume = message / wire_bytes(kind, 1.0, size)
    elif kind == "all_to_all":
        volume = message * size
    elif isinstance(group, Wide):
        volume = message / size
    time, achieved = number(row["time_us"]), number(row["algbw_GBps"]) or number(row["busbw_GBps"])
    if time is None and achieved is None:
        raise Skip("neither a time nor a bandwidth stated")
    # Google's benchmarks divide the bytes that each chip sends by the time.
    seconds = time / 1e6 if time is not None else wire_bytes(kind, volume, size) / (achieved or 1.0) / 1e9
    profile = profile_for(chip)
    network = profile.wide.name if isinstance(group, Wide) else profile.torus.name
    return Case(_id(row, place), row["source"], network, kind, ((volume, group),), profile, Options(), seconds, message)


def _pods(row: dict[str, str], chip: Chip) -> tuple[Group, int]:
    slices = _count(row, "n_nodes")
    if slices is None or slices < 2:
        raise Skip("number of slices not stated")
    if chip.dcn is None:
        raise Skip(f"no data-centre network known for {chip.title}")
    return Wide(slices, chip.dcn, chip.dcn_latency), slices


def _rings(row: dict[str, str], chip: Chip) -> tuple[Group, int]:
    network = chip.network
    assert isinstance(network, Torus)
    shape, size = read_torus(row["interconnect"]), _count(row, "n_ranks")
    if not shape:
        raise Skip("topology of the torus not stated")
    chips = math.prod(shape)
    cores = int(chip.structure.get("cores", 1))
    if size is None or size == chips * cores:
        size = chips
    axes = [(length, wraps) for length, wraps in zip(shape, wraparound(chip, shape), strict=True) if length > 1]
    for count in range(1, len(axes) + 1):
        for chosen in itertools.combinations(axes, count):
            if math.prod(length for length, _ in chosen) == size:
                rings = tuple(Ring(length, wraps) for length, wraps in chosen)
                return Rings(rings, network.link, network.hop_latency), size
    raise Skip("number of ranks does not match the torus")


def _moe_case(row: dict[str, str], place: int, chip: Chip, wires: Wires) -> Case:
    """Tokens to and from their experts: an AllToAll. Low-latency kernels send each token to each of its experts; the
    others send it once to each node and let the node pass it on, both at the same time."""
    notes = row["notes"].lower()
    tokens, hidden = _said(r"([\d,]+)\s*tokens", notes), _said(r"hidden\s*([\d,]+)", notes)
    picks, groups = _said(r"top-(\d+)(?!\d|\s*groups)", notes), _said(r"top-(\d+)\s*groups", notes)
    if not (tokens and hidden and picks):
        raise Skip("tokens, hidden size or experts per token not stated")
    size = _ranks(row)
    group, across = _switched(row, chip, size, wires)
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
    return Case(_id(row, place), row["source"], network, "all_to_all", parts, profile, Options(), seconds, counted)


def _by_node(
    group: Switches, size: int, token_bytes: float, picks: float, groups: float
) -> tuple[tuple[tuple[float, Group], ...], float]:
    """One copy of a token for each node among its experts' (at most `groups` nodes), then one for each rank."""
    local = group.levels[0].degree if len(group.levels) > 1 else size
    nodes = size // local
    ranks_hit = _distinct(picks, size)
    inside = token_bytes * ranks_hit
    if nodes == 1:
        return ((size * inside, group),), inside
    reached = min(nodes, groups)
    between = token_bytes * _distinct(picks, reached)
    node = Switches(local, group.levels[:1])
    rail = Switches(nodes, (replace(group.levels[0], degree=1), replace(group.levels[1], bandwidth=group.levels[1].bandwidth / local)))
    return ((local * inside, node), (nodes * between, rail)), between


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


def kernel_case(row: dict[str, str], place: int) -> Case:
    """A row of a kernel database: one node, `bytes` the whole buffer of one rank."""
    kind = _kind(row["op_name"])
    chip = _chip(row["system"])
    if isinstance(chip.network, Torus):
        raise Skip("kernels of a torus are not modelled one by one")
    size, message, latency = _count(row, "num_gpus"), number(row["bytes"]), number(row["latency_us"])
    if size is None or message is None or latency is None:
        raise Skip("number of GPUs, bytes or latency not a number")
    if size < 2:
        raise Skip("a single rank")
    node = chip.network.levels[0]
    if size > node.degree:
        raise Skip(f"more ranks than a node of {chip.title} holds")
    library = re.sub(r"[_-]?\d[\w.]*$", "", row["impl"].lower())
    if library not in implementations() and library not in ("nccl", ""):
        raise Skip(f"no model of the library {row['impl'][:40]!r}")
    profile = profile_for(chip, implementation=library or "nccl")
    name = profile.domain.name + ("" if profile.implementation == "nccl" else f" {profile.implementation}")
    volume = message * size if kind == "all_to_all" else message
    options = Options(in_network=_in_network("", row["dtype"]))
    identity = f"{row['system']}/{row['impl']}/{row['op_name']}/{row['dtype']}/{size}/{row['bytes']}"
    parts = ((volume, Switches(size, (node,))),)
    return Case(identity, row["impl"], name, kind, parts, profile, options, latency / 1e6, message)
