"""Families of chips: one file for those that are built of the same cores, a short table for each.

A family file starts from a chip of the catalogue (`base`), says what holds for all of its members, and gives for each
member what a datasheet prints: cores, clock, memory, power. What a core does in a cycle is the same in a family, so the
rates of a member follow from its cores and clock, as the vendors' own tables do:

    base = "rtx4090"

    [members.rtx4070]
    title = "NVIDIA GeForce RTX 4070"
    cores = 46
    clock = "2.475GHz"
    capacities = ["12GB"]
    bandwidth = "504GB/s"

Any other key of a chip file may stand beside these and replaces what would follow. A chip with several `capacities` is
sold with each of them; `visible` says how much of a capacity programs can allocate. A member that is sold as a variant
`of` another one (`m1max-24core`) can be named, but is not listed.
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.physics.hardware.chip_file import merge
from dragonscale.physics.units import parse
from dragonscale.tables import Strict, checked

Table = dict[str, Any]

# Bytes per second and lane of PCIe, by its generation, as datasheets round them.
_PCIE_LANE = {"3.0": 1e9, "4.0": 2e9, "5.0": 4e9}
# Cores multiply and add a power of two of numbers, or a few of them, in a cycle: what printed rates are rounded from.
_FLOPS_STEP = 32


class Member(Strict, frozen=True):
    """The datasheet of one member, as text with units. `pcie` is a generation and lanes such as
    `4.0 x8`. What a core does in a cycle is said only where it is not what the base's cores do; `without` names parts
    of the base's structure that the member does not have."""

    title: str
    released: str
    cores: int
    clock: str
    capacities: list[str]
    bandwidth: str
    source: str = "nvidia"
    clock_source: str = ""
    memory_kind: str = ""
    l2: str = ""
    pcie: str | dict[str, Any] = ""
    power: str = ""
    power_note: str = ""
    matrix_per_cycle: dict[str, int] = {}
    vector_per_cycle: dict[str, int] = {}
    without: list[str] = []


def expand(files: Mapping[str, Table]) -> dict[str, Table]:
    """Chip tables by name: files of one chip as they are, and the members of each family.

    A member keeps the family's `base`; `complete` works out its numbers once the base has been read.
    """
    tables: dict[str, Table] = {}
    for file_name, file in files.items():
        if "members" not in file:
            tables[file_name] = file
            continue
        family = dict(file)
        members: dict[str, Table] = {}
        for name, written in family.pop("members").items():
            sibling = members.get(written.get("of", ""), family)
            sources = family.get("sources", {}) | written.get("sources", {})
            members[name] = (
                sibling
                | written
                | {
                    "name": name,
                    "aliases": written.get("aliases", []),
                    "sources": sources,
                }
            )
        tables |= members
    return tables


def complete(member: Table, base: Table) -> Table:
    """The changes to `base` that a member's datasheet makes, in the layout of a chip file."""
    fields = Member.__struct_fields__
    rest = dict(member)
    data = checked({key: rest.pop(key) for key in fields if key in member}, Member, "family table", member["name"])
    core = "sms" if "sms" in base["structure"] else "cores"
    structure = _structure(data, base, core) | rest.pop("structure", {})
    changes: Table = {
        "title": f"{data.title} {data.capacities[-1]}",
        "released": data.released,
        "capacities": data.capacities,
        "structure": structure,
        "memory": _memory(data, structure, core),
    }
    for unit, per_cycle in (("matrix", data.matrix_per_cycle), ("vector", data.vector_per_cycle)):
        per_cycle = per_cycle or {dtype: _per_cycle(rate, base, core) for dtype, rate in base[unit].items()}
        changes[unit] = {dtype: _rate(flops, data, core) for dtype, flops in per_cycle.items()}
    if data.power:
        changes["power"] = {"value": data.power, "source": data.source, "note": data.power_note}
    if isinstance(data.pcie, dict):
        changes["pcie"] = data.pcie
    elif data.pcie:
        generation, lanes = data.pcie.split(" x")
        rate = f"{_PCIE_LANE[generation] * int(lanes) / 1e9:g}GB/s"
        link = {"value": rate, "source": data.source, "direction": "one-way", "note": f"PCIe {data.pcie}"}
        changes |= {"pcie": link, "levels": [{"name": "node", "bandwidth": link}]}
    return merge(changes, rest)


def _count(structure: Table, name: str) -> float:
    """A count of parts in a chip's structure."""
    return parse(structure[name]["value"], "count", name)


def _per_cycle(written: Table, base: Table, core: str) -> int:
    """FLOPs that one core of the base does in a cycle, by a printed rate of all of them."""
    base_cycles = _count(base["structure"], core) * parse(base["structure"]["clock"]["value"], "Hz", "clock")
    return round(parse(written["value"], "FLOP/s", "rate") / base_cycles / _FLOPS_STEP) * _FLOPS_STEP


def _rate(per_cycle: int, data: Member, core: str) -> Table:
    """A rate of the member: so many FLOPs a cycle on each of its cores at its clock."""
    rate = per_cycle * data.cores * parse(data.clock, "Hz", "clock")
    note = f"{data.cores} {core.replace('sms', 'SMs')} x {per_cycle} FLOPs a cycle x {data.clock}"
    return {"value": f"{rate / 1e12:.4g}TFLOP/s", "source": data.clock_source or data.source, "note": note}


def _structure(data: Member, base: Table, core: str) -> Table:
    """The member's counts of parts: those of one core as in the base."""
    cores = {"value": data.cores, "source": data.source}
    clock = {"value": data.clock, "source": data.clock_source or data.source, "note": "boost"}
    dropped = ("base_clock", "tensor_clock", *data.without)
    structure = base["structure"] | {core: cores, "clock": clock}
    for name in dropped:
        structure.pop(name, None)
    return structure


def _memory(data: Member, structure: Table, core: str) -> Table:
    """The member's memories. Those inside the cores grow with their number."""
    memory: Table = {
        "hbm": {
            "capacity": {"value": data.capacities[-1], "source": data.source, "note": data.memory_kind},
            "bandwidth": {"value": data.bandwidth, "source": data.source, "direction": "read+write"},
        }
    }
    if data.l2:
        memory["l2"] = {"capacity": {"value": data.l2, "source": data.source}}
    for level, per_core in (("smem", "smem_per_sm"), ("registers", "register_bytes_per_sm")):
        if core == "sms" and per_core in structure:
            size = _count(structure, per_core) * data.cores
            note = f"{size / data.cores / 2**10:g} KiB on each of {data.cores} SMs"
            memory[level] = {"capacity": {"value": f"{size / 2**20:.10g}MiB", "source": data.source, "note": note}}
    return memory


def with_capacity(table: Table, capacity: str) -> Table:
    """A chip table with one of its `capacities`, and with what programs can allocate of it where that is known.

    `visible` at the top of a table is by capacity; nothing of it is left.
    """
    sized = dict(table)
    visible = sized.pop("visible", {}).get(capacity)
    main = dict(table["memory"]["hbm"])
    written = main["capacity"]
    if written["value"] != capacity:
        main.pop("visible", None)
        main["capacity"] = written | {"value": capacity}
        sized["title"] = table["title"].removesuffix(written["value"]) + capacity
    if visible is not None:
        main["visible"] = visible
    sized["memory"] = table["memory"] | {"hbm": main}
    return sized
