"""Measured collectives: which collective a row is about, of how many bytes, over which wires, and how far the seconds
it took are from those expected (`dscale validate collectives FILE`).

Conventions of the published files: nccl-tests give the whole buffer (for an AllGather, all that is gathered; for an
AllToAll, what one rank sends); `busbw` is the bytes each rank sends per second; Google's TPU benchmarks report the
bytes each chip receives, or a bandwidth that counts them. A kernel database has one node, with the whole buffer of one
rank."""

import contextlib
import itertools
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.described import StatedNetwork, hint, meaning, read_network, read_torus, words
from dragonscale.evidence.rows import Form, Row, Skip, attempt, count, number, read_cases, skip_if, sound, stated, typed
from dragonscale.evidence.score import Scored, ScoreReport, report_of
from dragonscale.physics.collectives.cost import Options, wire_bytes
from dragonscale.physics.collectives.group import Group, Ring, Rings, Switches, Wide
from dragonscale.physics.collectives.profile import NetworkProfile, expected_time
from dragonscale.physics.collectives.profile_file import implementations, profile_for
from dragonscale.physics.hardware import Chip, Torus, load_chip
from dragonscale.physics.hardware.slices import wraparound

UNSIZED = "message size not stated"
DEEPEP = "deepep"
"""The library that sends tokens to experts, once to every node where that is shorter."""


class CollectiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """A typed row: `bytes` over all `ranks` (of an AllToAll, what all of them send), of which
    `local` share a node that `egress` bytes per second leave (0: all share one). On a torus `axes`
    are the sizes of its rings, a line's with a `-`; `slices` are joined by the data-centre network.
    `inside_bytes` are what an exchange that sends a token only once to every node passes on inside.
    `message` is the size that the source states."""

    id: str
    source: str = ""
    chip: str
    collective: str
    bytes: float
    message: float
    seconds: float
    ranks: int = 0
    local: int = 0
    egress: float = 0.0
    inside_bytes: float = 0.0
    axes: str = ""
    slices: int = 0
    transport: str = ""
    library: str = "nccl"
    in_network: bool = False


@dataclass(frozen=True)
class CollectiveCase:
    """A typed row in the model's terms. Several `parts` run at the same time, so the slowest
    counts."""

    row: CollectiveRow
    network: str
    parts: tuple[tuple[float, Group], ...]
    profile: NetworkProfile
    options: Options


def case_of(row: CollectiveRow) -> CollectiveCase:
    """A typed row as a case."""
    chip = load_chip(row.chip)
    profile = profile_for(chip, row.transport, row.library)
    if isinstance(chip.network, Torus):
        group = _torus_group(row, chip)
        network = (profile.wide if isinstance(group, Wide) else profile.torus).name
        return CollectiveCase(row, network, ((row.bytes, group),), profile, Options())
    node, *fabric = chip.network.levels
    options = Options(in_network=row.in_network)
    if not row.local:
        tier, parts = profile.domain, ((row.bytes, Switches(row.ranks, (node,))),)
    else:
        tier = profile.rail if row.local == 1 and row.library != DEEPEP else profile.fabric
        inside = replace(node, degree=row.local)
        between = replace(fabric[0], degree=0, bandwidth=row.egress)
        parts = ((row.bytes, Switches(row.ranks, (inside, between))),)
        if row.inside_bytes:
            card = replace(between, bandwidth=row.egress / row.local)
            rail = Switches(row.ranks // row.local, (replace(node, degree=1), card))
            parts = ((row.inside_bytes, Switches(row.local, (inside,))), (row.bytes, rail))
    label = {"nccl": tier.name, DEEPEP: f"{DEEPEP} {tier.name}"}.get(row.library, f"{tier.name} {row.library}")
    return CollectiveCase(row, label, parts, profile, options)


def _torus_group(row: CollectiveRow, chip: Chip) -> Group:
    assert isinstance(chip.network, Torus)
    if row.slices:
        if chip.dcn is None:
            raise Skip(f"no data-centre network known for {chip.title}")
        return Wide(row.slices, chip.dcn, chip.dcn_latency)
    skip_if(not re.fullmatch(r"\d+-?(x\d+-?)*", row.axes), "rings of the torus not stated")
    rings = tuple(Ring(int(size.rstrip("-")), not size.endswith("-")) for size in row.axes.split("x"))
    return Rings(rings, chip.network.link, chip.network.hop_latency)


def published_case(row: Row, place: int) -> CollectiveRow:
    """A row of published measurements as a typed one."""
    skip_if(row["kind"] not in ("collective", "p2p", ""), f"not a collective: {row['kind'][:40]}")
    kind, chip = kind_of(row["collective"]), _chip(row["chip"])
    shared = {"id": row.get("id") or f"row {place}", "source": row["source"], "chip": chip.name, "collective": kind}
    wires = read_network(row["interconnect"])
    if re.search(r"moe_(dispatch|combine)", row["collective"].lower()):
        return CollectiveRow(**shared, **_exchange(row, chip, wires))
    if isinstance(chip.network, Torus):
        return CollectiveRow(**shared, **_on_torus(row, chip, kind))
    size, message = _ranks(row), stated(row["bytes"], UNSIZED)
    volume = message * size if kind == "all_to_all" else message
    algorithm, bus = number(row["algbw_GBps"]), number(row["busbw_GBps"])
    sent = (message, algorithm) if algorithm else (wire_bytes(kind, volume, size), bus)
    measured = {"bytes": volume, "message": message, "seconds": _seconds(row, *sent)}
    over = {"transport": wires.transport, "in_network": _in_network(row["algorithm"], row["dtype"])}
    return CollectiveRow(**shared, **_nodes(row, chip, size, wires), **measured, **over)


def database_case(row: Row, _place: int) -> CollectiveRow:
    """A row of a kernel database as a typed one."""
    kind, chip = kind_of(row["op_name"]), _chip(row["system"])
    if isinstance(chip.network, Torus):
        raise Skip("kernels of a torus are not modelled one by one")
    size, message, latency = count(row, "num_gpus"), number(row["bytes"]), number(row["latency_us"])
    if not size or message is None or latency is None:
        raise Skip("number of GPUs, bytes or latency not a number")
    skip_if(size < 2, "a single rank")
    skip_if(size > chip.network.levels[0].degree, f"more ranks than a node of {chip.title} holds")
    library = re.sub(r"[_-]?\d[\w.]*$", "", row["impl"].lower()) or "nccl"
    skip_if(library not in (*implementations(), "nccl"), f"no model of the library {row['impl'][:40]!r}")
    labels = (*(row[name] for name in ("system", "impl", "op_name", "dtype")), str(size), row["bytes"])
    shared = {"id": "/".join(labels), "source": row["impl"], "chip": chip.name, "collective": kind}
    volume = message * size if kind == "all_to_all" else message
    over = {"library": library, "ranks": size, "transport": "ib", "in_network": _in_network("", row["dtype"])}
    return CollectiveRow(**shared, bytes=volume, message=message, seconds=latency / 1e6, **over)


FORMS = (
    Form(words("collectives")["columns"], published_case),
    Form(words("collectives")["kernels"], database_case),
    typed(CollectiveRow, ("collective", "message", "seconds")),
)


def kind_of(name: str) -> str:
    """The collective that a source means by a name."""
    kind = meaning(words("collectives")["names"], re.sub(r"[\s-]+", "_", name.strip().lower()))
    skip_if(not kind, f"no model of the collective {name[:40]!r}" if name else "collective not stated")
    return kind


def _chip(text: str) -> Chip:
    """The one chip that a text names."""
    named: dict[str, Chip] = {}
    for word in [text, *re.findall(r"[A-Za-z][\w.-]*", text)]:
        if word and not word.endswith(".toml"):
            with contextlib.suppress(InputError):
                chip = load_chip(word)
                named[chip.name] = chip
    wrong = "chip not stated or more than one" if not text or named else f"unknown chip {text[:40]!r}"
    skip_if(len(named) != 1, wrong)
    return next(iter(named.values()))


def _seconds(row: Row, sent: float, gbps: float | None) -> float:
    """The time that a row states, or that follows from bytes and the rate at which they went."""
    time = number(row["time_us"])
    skip_if(time is None and gbps is None, "neither a time nor a bandwidth stated")
    return time / 1e6 if time is not None else sent / ((gbps or 1.0) * 1e9)


def _ranks(row: Row) -> int:
    nodes, local = count(row, "n_nodes"), count(row, "ranks_per_node")
    size = count(row, "n_ranks") or nodes * local
    skip_if(not size, "number of ranks not stated")
    skip_if(size < 2, "a single rank")
    skip_if(nodes and local and nodes * local != size, "ranks, nodes and ranks per node disagree")
    return size


def _nodes(row: Row, chip: Chip, size: int, wires: StatedNetwork) -> dict[str, Any]:
    """How many ranks share a node, and what leaves it."""
    node, *fabric = chip.network.levels  # pyright: ignore[reportAttributeAccessIssue]
    nodes, local = count(row, "n_nodes"), count(row, "ranks_per_node")
    local = local or (math.ceil(size / nodes) if nodes else min(size, node.degree))
    if (node.degree > chip.host_chips or node.degree > 8) and not wires.node:
        # A rack of trays is one domain: its trays are not nodes of the network.
        local = math.ceil(size / math.ceil(size / node.degree))
    if nodes == 1 or local >= size:
        skip_if(size > node.degree, f"more ranks than a node of {chip.title} holds")
        return {"ranks": size}
    skip_if(local > node.degree, f"more ranks in a node than a node of {chip.title} holds")
    skip_if(not fabric, f"no network between nodes known for {chip.title}")
    egress = wires.egress(local) or fabric[0].bandwidth * local / node.degree
    return {"ranks": size, "local": local, "egress": egress}


def _in_network(algorithm: str, dtype: str) -> bool:
    """Whether switches may add: unless the row says otherwise, for the floating-point types that
    they can add."""
    if re.search(r"nvls|sharp|collnet", algorithm.lower()) and "off" not in algorithm.lower():
        return True
    return not algorithm and not re.search(r"int|u8|s8|fp8|f8", dtype.lower())


def _on_torus(row: Row, chip: Chip, kind: str) -> dict[str, Any]:
    text, message = f"{row['collective']} {row['interconnect']}".lower(), stated(row["bytes"], UNSIZED)
    slices = count(row, "n_nodes") if "dcn" in text or "multislice" in text else None
    skip_if(slices is not None and slices < 2, "number of slices not stated")
    where = {"slices": slices} if slices else _rings(row, chip)
    size = slices or where["ranks"]
    volume = message
    if "transferred" in row["bytes_meaning"].lower():
        volume = message / wire_bytes(kind, 1.0, size)
    elif kind == "all_to_all":
        volume = message * size
    elif slices:
        volume = message / size
    # Google's benchmarks divide the bytes that each chip sends by the time.
    achieved = number(row["algbw_GBps"]) or number(row["busbw_GBps"])
    seconds = _seconds(row, wire_bytes(kind, volume, size), achieved)
    return {**where, "bytes": volume, "message": message, "seconds": seconds, "transport": "ib"}


def _rings(row: Row, chip: Chip) -> dict[str, Any]:
    shape, size = read_torus(row["interconnect"]), count(row, "n_ranks")
    skip_if(not shape, "topology of the torus not stated")
    chips = math.prod(shape)
    if not size or size == chips * int(chip.structure.get("cores", 1)):
        size = chips
    axes = [(length, wraps) for length, wraps in zip(shape, wraparound(chip, shape), strict=True) if length > 1]
    for used in range(1, len(axes) + 1):
        for chosen in itertools.combinations(axes, used):
            if math.prod(length for length, _ in chosen) == size:
                return {"ranks": size, "axes": "x".join(f"{length}{'' if wraps else '-'}" for length, wraps in chosen)}
    raise Skip("number of ranks does not match the torus")


def _exchange(row: Row, chip: Chip, wires: StatedNetwork) -> dict[str, Any]:
    """Tokens to and from their experts, as DeepEP reports them: an AllToAll. Low-latency kernels
    send each token to each of its experts; the others send it once to each node and let the node
    pass it on, both at the same time."""
    tokens, hidden, picks, groups = (number(hint(row, name)) or 0.0 for name in ("tokens", "hidden", "picks", "groups"))
    skip_if(not (tokens and hidden and picks), "tokens, hidden size or experts per token not stated")
    size = _ranks(row)
    where = _nodes(row, chip, size, wires)
    token = hidden * _element_bytes(row["collective"].lower(), row["dtype"].lower())
    counted = picks * tokens * token
    volume = {"bytes": size * counted}
    if not hint(row, "low_latency") and groups:
        inside = tokens * token * _distinct(picks, size)
        counted, volume = inside, {"bytes": size * inside}
        if local := where.get("local"):
            counted = tokens * token * _distinct(picks, min(size // local, groups))
            volume = {"bytes": size // local * counted, "inside_bytes": local * inside}
    seconds, transport = _seconds(row, counted, number(hint(row, "logical_gbps"))), wires.transport or "ib"
    return {**where, **volume, "message": counted, "seconds": seconds, "transport": transport, "library": DEEPEP}


def _distinct(picks: float, places: float) -> float:
    """How many of `places` random picks hit."""
    return places * (1 - (1 - 1 / places) ** picks)


def _element_bytes(name: str, dtype: str) -> float:
    """Bytes of one element on the wire; fp8 comes with a 4-byte scale for every 128."""
    if "/" in dtype:
        dtype = next((part for part in dtype.split("/") if name.removeprefix("moe_") in part), "")
    sizes = {"fp8": 1 + 4 / 128, "bf16": 2.0, "fp16": 2.0}
    size = next((size for name, size in sizes.items() if name in dtype), None)
    if size is None:
        raise Skip("dtype of the tokens not stated")
    return size


LARGE = 2**20
"""Bytes above which a message counts as large."""


def collective_cases(path: str | Path) -> tuple[list[CollectiveCase], list[str]]:
    """The rows of a file that can be predicted, and the reason for each one that cannot."""
    return read_cases(path, "collectives", FORMS, case_of)


def predict(case: CollectiveCase) -> float:
    """Seconds that the model expects for a case."""
    kind, profile, options = case.row.collective, case.profile, case.options
    return max(float(expected_time(kind, volume, group, profile, options)) for volume, group in case.parts)


def validate(path: str | Path) -> ScoreReport:
    """Score every row of a file of measured collectives."""
    cases, reasons = collective_cases(path)
    scored = [
        Scored(case.row.id, case.row.source, case.row.seconds, expected, case.network, case.row.message > LARGE)
        for case, expected in attempt(cases, lambda case: sound(predict(case)), reasons)
    ]
    return report_of(scored, reasons)
