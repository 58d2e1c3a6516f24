"""A chip: the rates and sizes of its compute, memory and network, each with its source.

A `Chip` is plain floats in base units, ready for cost formulas; `facts` holds the provenance of each of them under its
path in the data file (`matrix.bf16`, `memory.hbm.bandwidth`, `ici.link`).

Public tools disagree about the same chip (is the H100's HBM 3072, 3350 or 3400 GB/s? per GPU or per node? one way or
both?) because none of them says. Here every value carries its unit, what it is per, its direction, its source and the
source's date. Other sources' readings of the same quantity stand beside it under `also`, so that a calculation can be
repeated with the numbers of one source throughout (`Chip.reading("book")`).
"""

from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.errors import InputError, unknown
from dragonscale.physics.stored_formats import stored_bytes
from dragonscale.physics.units import COMPUTED_AS, DTYPE_BYTES


@dataclass(frozen=True)
class Quantity:
    """A value in base units with its provenance."""

    value: Any
    dimension: str
    source: str
    per: str = "chip"
    direction: str = ""
    note: str = ""
    also: tuple["Quantity", ...] = ()

    def reading(self, source: str) -> "Quantity":
        """This quantity as `source` gives it, if it gives it at all; otherwise unchanged."""
        return next((other for other in self.also if other.source == source), self)


# XLA's names of dtypes, and ours.
_SAME_DTYPE = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "f8": "fp8", "s8": "int8", "u8": "int8"}
# The next mode that a matrix unit without one for the dtype falls back to; fp16 and bf16 stand in for each other.
_WIDER = {"fp4": "fp8", "fp6": "fp8", "fp8": "bf16", "int4": "int8", "int8": "bf16", "fp16": "bf16", "bf16": "fp16"}

WHAT_IF = "what-if"
"""The source of numbers that somebody asks about."""
HOST_MEMORY = 128e9
"""Bytes of host memory for each chip where nothing is known: half of what the nodes of large GPUs have."""
SERVER_MEMORY_BANDWIDTH = 307.2e9
"""Bytes per second of a host's memory where nothing is known: one socket with eight channels of DDR5-4800."""


def dtype_bytes(dtype: str) -> float:
    """Bytes of one element.

    >>> dtype_bytes("bf16"), dtype_bytes("int4"), dtype_bytes("q8_0")
    (2, 0.5, 1.0625)
    """
    if dtype in DTYPE_BYTES:
        return DTYPE_BYTES[dtype]
    size = stored_bytes(dtype)
    if size is None:
        raise unknown("dtype", dtype, DTYPE_BYTES)
    return size


@dataclass(frozen=True)
class Memory:
    """One level of a chip's memory: bytes, bytes per second, and the bytes of it that a program can allocate."""

    capacity: float
    bandwidth: float | None = None
    visible: float | None = None


@dataclass(frozen=True)
class NumberFormats:
    """Block-scaled formats that the matrix unit multiplies (`native`), and formats that weights can only be stored in
    and are widened from before they are multiplied (`weights`)."""

    native: tuple[str, ...]
    weights: tuple[str, ...]
    source: str
    note: str = ""


@dataclass(frozen=True)
class Torus:
    """Chips wired to their nearest neighbours: the ICI of a TPU.

    `link` is the one-way bandwidth of one link. `wrap` is the generation's rule for wraparound links: `full-axis` means
    that an axis closes into a ring only when it is as long as the pod's; `cubes` means that every axis does when the
    slice is made of whole 4x4x4 cubes, which optical switches join.
    """

    axes: int
    link: float
    hop_latency: float
    pod: tuple[int, ...]
    wrap: str
    slices: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Level:
    """One tier of switches: `degree` children, each joined to it by `bandwidth` bytes per second one way.

    A degree of 0 means as many as needed (the top tier). `reduces` says whether the switches can add (SHARP, NVLS).
    Without a switch a child's bandwidth is that of its links to the others together: `peers` of them (a group of n then
    has n-1), 0 where there is a switch. `bridge` is what two neighbours have between them where a bridge joins pairs.
    """

    name: str
    degree: int
    bandwidth: float
    latency: float
    reduces: bool = False
    peers: float = 0
    bridge: float = 0.0


@dataclass(frozen=True)
class Tree:
    """Chips under tiers of switches: an NVLink domain, then leaf and spine switches."""

    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Chip:
    """Everything known about one kind of chip. Rates are per chip and, for links, one way. `price` is what people pay
    for an hour of it, `list_price` what the large clouds ask for on demand."""

    name: str
    title: str
    kind: str
    matrix: dict[str, float]
    vector: dict[str, float]
    memory: dict[str, Memory]
    network: Torus | Tree
    pcie: float | None = None
    dcn: float | None = None
    dcn_latency: float = 0.0
    host_chips: int = 1
    host_shape: tuple[int, ...] = ()
    vm_chips: int = 0
    formats: NumberFormats | None = None
    structure: dict[str, Any] = field(default_factory=dict)
    price: float | None = None
    list_price: float | None = None
    power: float | None = None
    aliases: tuple[str, ...] = ()
    released: str = ""
    default_slice: str = ""
    architecture: str = ""
    """The generation that software asks for: hopper, cdna3, tpu-v5e …"""
    announced: bool = False
    """Whether nobody can have it yet, so that its numbers are promises."""
    capacities: tuple[str, ...] = ()
    """The sizes of memory that it is sold with, where there are several."""
    personal: bool = False
    """Whether people own it rather than rent it: a machine, a laptop or a card of a desktop."""
    unified: bool = False
    """Whether its main memory is also that of the CPU."""
    facts: dict[str, Quantity] = field(default_factory=dict, repr=False)
    sources: dict[str, str] = field(default_factory=dict, repr=False)
    assumed: str = ""
    """What a user's file left out and what was taken instead, in a sentence."""
    like: str = ""
    """The built-in chip that a file or a what-if starts from: its software and measured efficiencies are taken."""
    kernels: str = ""
    """The kernel profile to take instead of the one that fits best: a file, the name of a built-in one, `own` or
    `built-in`."""

    def __repr__(self) -> str:
        return f"<Chip {self.name}: {self.title}>"

    @property
    def host_link(self) -> float:
        """Bytes per second between the chip and its host; where the file knows none, PCIe of the third generation."""
        return float(self.pcie or 16e9)

    @property
    def host_memory(self) -> float:
        """Bytes of its host's memory for each chip; where the file knows none, `HOST_MEMORY`."""
        fact = self.facts.get("host.memory")
        if fact is None:
            return HOST_MEMORY
        return float(fact.value) / max(1, self.host_chips)

    @property
    def host_memory_bandwidth(self) -> float:
        """Bytes per second of the memory that the CPU computes from: of the whole host, shared by its chips. Where CPU
        and GPU have one memory it is that one; where the file knows none, `SERVER_MEMORY_BANDWIDTH`."""
        if self.unified:
            return self.bandwidth("hbm")
        fact = self.facts.get("host.memory_bandwidth")
        return SERVER_MEMORY_BANDWIDTH if fact is None else float(fact.value)

    @property
    def devices(self) -> int:
        """Devices that a program sees in one chip, each with its own sequences."""
        return int(self.structure.get("devices", 1))

    @property
    def hbm(self) -> Memory:
        """The main memory."""
        return self.memory["hbm"]

    @property
    def visible(self) -> float:
        """Bytes of main memory that a program can allocate in all, as drivers and runtimes report it."""
        return self.hbm.capacity if self.hbm.visible is None else self.hbm.visible

    @property
    def linked(self) -> bool:
        """Whether the chips of a node are joined by faster links than PCIe."""
        return isinstance(self.network, Torus) or self.network.levels[0].bandwidth > (self.pcie or 0.0)

    @property
    def kin(self) -> str:
        """The name under which software and measurements know it: its own, or that of the chip it starts from."""
        return self.like or self.name

    def format(self, dtype: str) -> str:
        """`native` if matrices of this dtype are multiplied as they are, `weights` if weights can only be stored in it
        and are multiplied as something wider, empty if the chip cannot do with it at all.

        A file that says nothing about formats has what its rates name, and stores anything narrower.
        """
        size, name = dtype_bytes(dtype), _SAME_DTYPE.get(dtype, dtype)
        if dtype not in DTYPE_BYTES:
            return "weights"  # blocks of a file, which kernels of any chip unpack
        if self.formats is None:
            if self._has_rate(COMPUTED_AS.get(name, name)):
                return "native"
            # weights narrower than two bytes are widened as they are loaded, by any chip that multiplies at all
            return "weights" if size < 2 and self.matrix else ""
        stored = self.formats.weights
        if name in stored:
            return "weights"
        # plain fp4 is one of the block-scaled formats, where the matrix unit has no fp4 of its own
        if name == "fp4" and "fp4" not in self.matrix and {"mxfp4", "nvfp4"} & {*stored}:
            return "weights"
        if name in self.formats.native or self._has_rate(name):
            return "native"
        return ""

    def _has_rate(self, dtype: str) -> bool:
        """Whether the chip states a rate for the dtype; fp32 and fp64 are those of the vector unit if need be."""
        return dtype in self.matrix or (dtype in ("fp32", "fp64") and dtype in self.vector)

    def _rates(self, unit: str) -> dict[str, float]:
        return self.matrix if unit == "matrix" else self.vector

    def peak(self, dtype: str = "bf16", unit: str = "matrix") -> float:
        """FLOP/s of the matrix or vector unit for operands of this dtype.

        A dtype the unit has no mode for runs at the rate of the next wider one it has: int8 weights on a chip without
        int8 are converted on the fly and multiplied as bf16.
        """
        rate = self.rate(dtype, unit)
        if rate is None:
            dtypes = ", ".join(sorted(self._rates(unit)))
            raise InputError(f"{self.title} has no known {unit} rate for {dtype}; known: {dtypes}.")
        return rate

    def rate(self, dtype: str, unit: str = "matrix") -> float | None:
        """FLOP/s like `peak`, or None where the unit has neither the dtype nor a wider one, such as fp32 on most
        matrix units."""
        dtype_bytes(dtype)  # refuses what is no dtype
        rates = self._rates(unit)
        name = dtype if dtype in rates else COMPUTED_AS.get(dtype, dtype)
        tried: set[str] = set()
        # widen until the unit has a mode; the walk ends at a dtype without a wider one, or in fp16 <-> bf16
        while name not in rates:
            tried.add(name)
            name = "fp32" if unit == "vector" else _WIDER.get(name, "")
            if not name or (name in tried and name not in rates):
                return None
        return rates[name]

    def bandwidth(self, level: str) -> float:
        """Bytes per second of a memory level, or of `pcie` or `dcn`, per chip."""
        rates: dict[str, float | None] = {name: memory.bandwidth for name, memory in self.memory.items()}
        rates |= {"pcie": self.pcie, "dcn": self.dcn}  # None where the chip has no such link
        rate = rates.get(level)
        if rate is None:
            raise unknown(f"bandwidth of {self.title} called", level, [name for name, value in rates.items() if value])
        return rate

    def intensity(self, dtype: str = "bf16", unit: str = "matrix", level: str = "hbm") -> float:
        """The critical intensity, FLOPs per byte: below it an operation is bound by `level`, above it by compute."""
        return self.peak(dtype, unit) / self.bandwidth(level)

    def reading(self, source: str) -> "Chip":
        """This chip with every number as one source gives it (the others stay as they are).

        `load_chip("h200").reading("book")` has the book's rounded table values, for repeating its arithmetic.
        """
        if source not in self.sources:
            raise unknown(f"source for {self.title} called", source, self.sources)
        read = {path: fact.reading(source) for path, fact in self.facts.items()}
        if "memory.hbm.visible" in read and read["memory.hbm.visible"].source != source:
            del read["memory.hbm.visible"]  # the source counts with all of the memory that it states
        return assemble(self, read)

    def with_facts(self, **changes: float) -> "Chip":
        """A what-if chip: the same one with some facts replaced, e.g.
        `with_facts(**{"memory.hbm.bandwidth": 5.6e12})`."""
        for path in changes:
            if path not in self.facts:
                raise unknown(f"fact of {self.title} called", path, self.facts)
        if "memory.hbm.capacity" in changes and "memory.hbm.visible" in self.facts:
            # programs find the same share of more memory, unless the change says what they find
            grown = changes["memory.hbm.capacity"] / self.hbm.capacity
            changes = {"memory.hbm.visible": self.visible * grown} | changes
        changed = {path: replace(self.facts[path], value=value, source=WHAT_IF) for path, value in changes.items()}
        return assemble(self, self.facts | changed)


def assemble(chip: Chip, facts: dict[str, Quantity]) -> Chip:
    """The chip with its numbers taken from `facts`."""

    def value(path: str, default: Any = None) -> Any:
        fact = facts.get(path)
        return default if fact is None else fact.value

    def under(prefix: str) -> dict[str, Any]:
        return {path[len(prefix) :]: fact.value for path, fact in facts.items() if path.startswith(prefix)}

    memory: dict[str, Memory] = {}
    # paths such as memory.hbm.capacity and memory.l2.bandwidth
    for name in sorted({path.split(".")[1] for path in facts if path.startswith("memory.")}):
        at = f"memory.{name}"
        memory[name] = Memory(value(f"{at}.capacity", 0.0), value(f"{at}.bandwidth"), value(f"{at}.visible"))
    if isinstance(chip.network, Torus):
        pod, link, hop = tuple(map(int, value("ici.pod"))), value("ici.link"), value("ici.hop_latency")
        network: Torus | Tree = replace(chip.network, axes=len(pod), link=link, hop_latency=hop, pod=pod)
    else:
        # bandwidth, latency and bridge of each tier; its degree and name are no facts
        network = Tree(tuple(replace(level, **under(f"levels.{level.name}.")) for level in chip.network.levels))
    return replace(
        chip,
        matrix=under("matrix."),
        vector=under("vector."),
        memory=memory,
        network=network,
        pcie=value("pcie"),
        dcn=value("dcn.egress"),
        dcn_latency=value("dcn.latency", 0.0),
        host_chips=int(value("host.chips", 1)),
        host_shape=tuple(map(int, value("host.shape", ()))),
        vm_chips=int(value("host.vm", 0)),
        structure=under("structure."),
        price=value("price"),
        list_price=value("list_price"),
        power=value("power"),
        facts=facts,
    )
