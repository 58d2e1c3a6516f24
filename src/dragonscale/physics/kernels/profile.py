"""The efficiency of a chip's kernels: constants of a small model of each kind of kernel, fitted on measurements.

The models count what the hardware does (tiles, waves of tiles over the cores, bytes). The constants are fractions of
the datasheet's rates, and seconds that do not shrink with the work. Fractions carry over to a chip of the same family
with other datasheet rates, which is how chips without measurements are predicted.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.kernels.dtypes import FORMATS, format_name, stand_ins

Table = TypeVar("Table")


@dataclass(frozen=True)
class Matmul:
    """A dense matmul. See `dragonscale.physics.kernels.matmul` for the formula.

    `launch`: seconds before and after the work. `rate`: fraction of the peak inside a tile. `operands`: a tile of a x b
    takes as long as a·b + operands·(a + b) multiplications, its operands having to be fetched. `prologue`: so many
    steps of the contraction go into filling and draining a tile's pipeline. `quantum`: how much of the idle part of the
    last wave is lost. `join`: seconds to add up parts where a contraction is split among cores (0: never split).
    `bandwidth`: fraction of the memory's. `unhidden`: part of the shorter of compute and memory that does not overlap
    the longer. `sustained`, `throttle`: kernels longer than `throttle` seconds run at `sustained` of the rate, as power
    allows. `pad`: the contraction is rounded up to this. `pad_rows`: rows beyond half of it are rounded up to this.
    `quantise_*`: seconds for a row, and passes over the activations, to bring them to a narrow format. `dispatch_few`,
    `dispatch`: seconds of the host per call without graphs, for up to and above 31 rows.
    `core_flops`, `core_bytes`: the most that a core multiplies, and reads of weights, in a cycle, where instructions
    that unpack them are the limit (0: none). `experts`: the part of `rate` and `core_flops` that matmuls of an MoE's
    experts reach.
    """

    launch: float
    rate: float
    tiles: tuple[tuple[int, int], ...]
    operands: float = 0.0
    prologue: float = 0.0
    quantum: float = 1.0
    join: float = 0.0
    bandwidth: float = 0.9
    unhidden: float = 0.2
    sustained: float = 1.0
    throttle: float = 1e-3
    pad: int = 1
    pad_rows: int = 0
    quantise_launch: float = 0.0
    quantise_row: float = 0.0
    quantise_passes: float = 1.0
    dispatch_few: float = 0.0
    dispatch: float = 0.0
    core_flops: float = 0.0
    core_bytes: float = 0.0
    experts: float = 1.0


@dataclass(frozen=True)
class FlashAttention:
    """Flash attention of many queries. See `dragonscale.physics.kernels.attention`.

    `tile`: query rows of a tile. `packed`: whether query heads that share a KV head share tiles. `edge`, `fill`:
    seconds of a tile beside its matmuls, fixed and in proportion to the rows that are used. `longest`: how much of the
    longest tile's time is a floor for all. `query_bytes`, `kv_bytes`: bytes moved for each element of a query head (in
    and out) and of a KV head. `softmax`: a score costs as much as so many more elements of head. `write_row`,
    `write_bytes`: seconds for a token, and bytes for each element of its KV heads, to write the cache. `backward`: the
    backward pass's time over the forward's.
    """

    launch: float
    rate: float
    tile: int
    packed: bool
    edge: float = 0.0
    fill: float = 0.0
    quantum: float = 1.0
    longest: float = 1.0
    query_bytes: float = 4.0
    kv_bytes: float = 4.0
    unhidden: float = 0.5
    softmax: float = 80.0
    write_row: float = 0.0
    write_bytes: float = 4.0
    backward: float = 2.9


@dataclass(frozen=True)
class Decode:
    """Attention of one query per sequence. See `dragonscale.physics.kernels.decode`.

    `block`, `group`: seconds of one (sequence, KV head), fixed and per query head that shares it. `bandwidth`: fraction
    of the memory's; `cached`: the same for what the last-level cache holds. `key`: seconds per key of a block's chain,
    up to `chain` keys, beyond which bandwidth rules. `join`: seconds to join a sequence split among cores.
    """

    launch: float
    block: float
    bandwidth: float
    group: float = 0.0
    quantum: float = 0.5
    cached: float = 1.0
    unhidden: float = 0.5
    key: float = 0.0
    chain: float = 1000.0
    join: float = 0.0


EXPERT_CALLS = 6
"""Calls that the host issues for the experts of a layer, one by one: see `Grouped.calls`."""


@dataclass(frozen=True)
class Grouped:
    """The experts of an MoE layer: two grouped matmuls and what lies between. See
    `dragonscale.physics.kernels.grouped`.

    As for `Matmul`; `rows` and `columns` are the tiles' sides. `occupancy`: tiles per core that it takes to reach the
    memory's bandwidth. `route_row`: seconds for each token (routing, permuting, adding up); `hidden_bytes`,
    `inner_bytes`: bytes moved for each hidden and inner element of an expert's row beside the matmuls'; `expert`:
    seconds for each expert on the chip. `expanded`: nothing of that; the rows are spread over all experts, with zeros
    for those they do not go to, and multiplied by all weights at once, as XLA's GPU compiler does with `ragged_dot`.
    `calls`: what the host issues for a layer, one by one: routing, dealing out, two matmuls, the activation between
    them, adding up; 1 where a library does all of it in one.
    """

    launch: float
    rate: float
    rows: tuple[int, ...]
    calls: int = EXPERT_CALLS
    columns: int = 128
    operands: float = 0.0
    prologue: float = 0.0
    quantum: float = 1.0
    bandwidth: float = 0.9
    occupancy: float = 0.5
    unhidden: float = 0.2
    route_row: float = 0.0
    hidden_bytes: float = 0.0
    inner_bytes: float = 0.0
    expert: float = 0.0
    expanded: bool = False


@dataclass(frozen=True)
class Stream:
    """Work that only moves bytes: norms, elementwise operations, the optimizer."""

    launch: float
    bandwidth: float


RECORDS = {"matmul": Matmul, "attention": FlashAttention, "decode": Decode}


@dataclass(frozen=True)
class FittedOn:
    """The evidence for a table's constants: the source, how many rows, the errors left on rows that were and were not
    fitted, a note, and for experts the fewest and most columns of one on a chip (`inner`) among the rows that were
    fitted or that tests hold the table to."""

    source: str
    rows: int = 0
    median_ape: float | None = None
    held_out: float | None = None
    unseen_shapes: float | None = None
    note: str = ""
    inner: tuple[int, int] | None = None


@dataclass(frozen=True)
class Tables(Generic[Table]):
    """The tables of one kind of kernel by format; a format without one uses the nearest that has one."""

    by_format: dict[str, Table]

    def of(self, dtype: str) -> Table:
        """The constants for a format."""
        return self.by_format[self.stands_in(dtype)]

    def stands_in(self, dtype: str) -> str:
        """The format whose constants `of` takes for this one."""
        for name in stand_ins(format_name(dtype)):
            if name in self.by_format:
                return name
        return next(iter(self.by_format))


@dataclass(frozen=True)
class KernelProfile:
    """The constants of all kernels of one chip, whose datasheet's rates are those of `chip`."""

    name: str
    title: str
    chip: Chip
    cores: float
    cache_bytes: float
    stream: Stream
    matmul: Tables[Matmul]
    attention: Tables[FlashAttention]
    decode: Tables[Decode]
    grouped: Tables[dict[str, Grouped]]
    measured: bool = False
    exponentials: float = 1.0
    """Exponentials per core and cycle, over those of the chip that was measured."""
    rests_on: dict[str, FittedOn] = field(default_factory=dict, repr=False)

    @property
    def clock(self) -> float:
        """Cycles of a core per second; 1.5 GHz where the chip's file does not say."""
        return float(self.chip.structure.get("clock") or 1.5e9)

    @property
    def bandwidth(self) -> float:
        """The memory's bytes per second, from the datasheet."""
        return self.chip.bandwidth("hbm")

    def peak(self, dtype: str) -> float:
        """The matrix unit's FLOP/s for a format, from the datasheet."""
        return self.chip.peak(FORMATS[format_name(dtype)].compute)
