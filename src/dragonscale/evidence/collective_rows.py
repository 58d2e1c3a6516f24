"""What a row of measured collectives means: which collective, of how many bytes, over which wires, and the seconds it took.

Conventions of the sources: nccl-tests give the whole buffer (for an AllGather, all that is gathered; for an AllToAll, what
one rank sends); `busbw` is the bytes each rank sends per second; Google's TPU benchmarks report the bytes each chip
receives, or a bandwidth that counts them. A row that does not say what is needed raises `Skip` with the reason.
"""

import itertools
import math
import re

from dragonscale.collectives.cost import Options, wire_bytes
from dragonscale.collectives.group import Group, Ring, Rings, Switches, Wide
from dragonscale.collectives.profile import Profile
from dragonscale.collectives.profile_file import implementations, profile_for
from dragonscale.evidence.collective_case import Case, Skip, chip_of, count, identity, kind_of, ranks, switched
from dragonscale.evidence.interconnect import read_torus, read_wires
from dragonscale.evidence.moe_rows import moe_case
from dragonscale.evidence.score import number
from dragonscale.hardware import Chip, Torus
from dragonscale.hardware.slices import wraparound


def published_case(row: dict[str, str], place: int) -> Case:
    """A row of published measurements, as in `collectives.csv`."""
    if row["kind"] not in ("collective", "p2p", ""):
        raise Skip(f"not a collective: {row['kind'][:40]}")
    name = row["collective"].lower()
    kind = kind_of(row["collective"])
    chip = chip_of(row["chip"])
    wires = read_wires(row["interconnect"])
    if re.search(r"moe_(dispatch|combine)", name):
        return moe_case(row, place, chip, wires)
    if isinstance(chip.network, Torus):
        return _torus_case(row, place, chip, kind)
    size = ranks(row)
    message = number(row["bytes"])
    if message is None:
        raise Skip("message size not stated")
    volume = message * size if kind == "all_to_all" else message
    seconds = _seconds(row, kind, message, volume, size)
    group, across = switched(row, chip, size, wires)
    profile = profile_for(chip, wires.transport)
    network = _network(profile, group, across)
    options = Options(in_network=_in_network(row["algorithm"], row["dtype"]))
    return Case(
        identity(row, place), row["source"], network, kind, ((volume, group),), profile, options, seconds, message
    )


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
    return Case(
        identity(row, place), row["source"], network, kind, ((volume, group),), profile, Options(), seconds, message
    )


def _pods(row: dict[str, str], chip: Chip) -> tuple[Group, int]:
    slices = count(row, "n_nodes")
    if slices is None or slices < 2:
        raise Skip("number of slices not stated")
    if chip.dcn is None:
        raise Skip(f"no data-centre network known for {chip.title}")
    return Wide(slices, chip.dcn, chip.dcn_latency), slices


def _rings(row: dict[str, str], chip: Chip) -> tuple[Group, int]:
    network = chip.network
    assert isinstance(network, Torus)
    shape, size = read_torus(row["interconnect"]), count(row, "n_ranks")
    if not shape:
        raise Skip("topology of the torus not stated")
    chips = math.prod(shape)
    cores = int(chip.structure.get("cores", 1))
    if size is None or size == chips * cores:
        size = chips
    axes = [(length, wraps) for length, wraps in zip(shape, wraparound(chip, shape), strict=True) if length > 1]
    for used in range(1, len(axes) + 1):
        for chosen in itertools.combinations(axes, used):
            if math.prod(length for length, _ in chosen) == size:
                rings = tuple(Ring(length, wraps) for length, wraps in chosen)
                return Rings(rings, network.link, network.hop_latency), size
    raise Skip("number of ranks does not match the torus")


def kernel_case(row: dict[str, str], _place: int) -> Case:
    """A row of a kernel database: one node, `bytes` the whole buffer of one rank."""
    kind = kind_of(row["op_name"])
    chip = chip_of(row["system"])
    if isinstance(chip.network, Torus):
        raise Skip("kernels of a torus are not modelled one by one")
    size, message, latency = count(row, "num_gpus"), number(row["bytes"]), number(row["latency_us"])
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
