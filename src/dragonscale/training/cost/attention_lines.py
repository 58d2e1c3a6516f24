"""Attention on one chip as the kernels that run there: one over whole sequences, two where keys are gathered over
`context`, one a hop where they go round a ring.

Over `context` every sequence is cut into 2N chunks, of which chip i has the i-th from the front and the i-th from the
back: under a causal mask all chips then work alike (zigzag, as in TransformerEngine, PyTorch and MaxText). With c =
t/2N:

- gathered: the two chunks are two kernels, of c queries against the keys up to them. The chip with the first and the
  last chunk
  is the one that is waited for.
- round a ring: one causal kernel of 2c queries against the chip's own 2c keys, then N − 1 hops, each of 2c queries
  against the
  first c keys that came, or of the last c queries against all 2c. What each hop finds is merged with what was there.
- ulysses: one kernel over whole sequences of fewer heads. Queries, keys, values and results are copied into the order
  of the
  exchange, and out of it.

Packed documents are sequences of their own: each is cut over `context` by itself (TransformerEngine's `thd`), so all
chips still work alike, on shorter pieces; keys and values travel whole all the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.models.attention import line_takes_flash
from dragonscale.models.flops import Workload, op_flops
from dragonscale.physics.numbers import Number, maximum, minimum, product, where
from dragonscale.physics.sharding.layout import local_elements, local_sizes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.reader import Kernel, Reading
from dragonscale.training.plan.setting import LAUNCHES, PassLine, PlacedSection, Setting, attending_sizes
from dragonscale.training.plan.timers import AttentionShape, Timer

MERGED_BYTES = {"forward": 10.0, "dgrad": 6.0}
"""Bytes moved to merge one element that a hop found: results are read and written in fp32, the hop's own read in bf16
(PyTorch's merger; TransformerEngine's adds in bf16 after the last hop); gradients are added in bf16."""
MERGED_PART = 0.75
"""The part of queries, and of keys, that a hop computes with: all of one and half of the other, in turns."""
MERGE_LAUNCHES = 2.0
"""Kernels of a merge: results and sums of the softmax; gradients of queries, and of keys and values."""

TRADED_BYTES = 8.0
"""Bytes moved to bring one element of bf16 into the order of an exchange of heads, and what came into the kernel's
(TransformerEngine copies before and after each of its all-to-alls)."""
TRADE_LAUNCHES = 3.0
"""Kernels of an exchange: a copy, the all-to-all, a copy."""


def attention_lines(kernel: Kernel, own: PlacedSection) -> Iterator[PassLine]:
    """One pass of attention: its kernels, and what merges their results."""
    setting, reading, mesh = own.setting, own.reading, own.mesh
    section, query, sizes = reading.section, kernel.arrays[0], attending_sizes(own.sizes, reading.rules, mesh)
    chips = mesh.size(*query.dim("t").axes)
    hops = (chips - 1) if _by_hops(reading, setting) else 0
    flops = attention_flops(kernel, reading, sizes, mesh, setting) if setting.detail else 0.0
    read = 2.0 * sum(local_elements(array, sizes, mesh) for array in kernel.arrays) if setting.detail else 0.0
    seconds, cover = 0.0, 0.0
    if setting.timer is not None:
        timed = _Timed(setting.timer, _shape(kernel, reading, sizes, mesh, setting), chips, kernel.phase == "dgrad")
        seconds, cover = timed.hopping(reading.rules.ring) if _by_hops(reading, setting) else (timed.gathered(), 0.0)
    each = LAUNCHES.get(kernel.function, 1.0)
    many = each * (1 + hops) if _by_hops(reading, setting) else each * where(chips > 1, 2.0, 1.0)
    name = query.name if kernel.phase == "forward" else f"d{query.name}"
    plain_flash = setting.stack.kernels.plain_flash and setting.slice.chip.kind == "gpu"
    line = PassLine(
        section.name,
        kernel.phase,
        name,
        "attention",
        part="scores",
        flops=flops,
        hbm_bytes=read,
        bound_s=flops / setting.slice.chip.peak("bf16"),
        expected_s=seconds,
        ops=((kernel.line, flops),),
        launches=many + (hops if reading.rules.ring else 0),
        covers=cover,
        kept=plain_flash and line_takes_flash(section, kernel.op, setting.slice.chip.architecture),
    )
    yield line
    if _by_hops(reading, setting):
        yield _copy_line(
            line, "merged", _merged_bytes(kernel, reading, sizes, mesh, hops), MERGE_LAUNCHES * hops, setting
        )
    if reading.rules.trades:
        # what is copied before and after heads are exchanged for the sequence
        there = mesh.size(*(axis for axis in reading.rules.attend_heads if axis not in reading.rules.heads)) > 1
        moved = there * TRADED_BYTES * sum(local_elements(one, sizes, mesh) for one in kernel.arrays)
        yield _copy_line(line, "traded", moved, there * TRADE_LAUNCHES * len(kernel.arrays), setting)


def _by_hops(reading: Reading, setting: Setting) -> bool:
    """Whether attention is one kernel for each chip's keys: round a ring, or because the stack has no other."""
    return reading.rules.ring or (setting.stack.kernels.hops and not reading.rules.trades)


def _merged_bytes(kernel: Kernel, reading: Reading, sizes: dict[str, Number], mesh: Mesh, hops: Number) -> Number:
    """Of partial results put together after each hop but the first; backward, of gradients of queries, keys and
    values."""
    query, *keys, result = kernel.arrays
    merged = (result,) if kernel.phase == "forward" else (query, *(reading.rules.activation(key) for key in keys))
    elements = sum(local_elements(array, sizes, mesh) for array in merged)
    return hops * MERGED_PART * MERGED_BYTES[kernel.phase] * elements


def _copy_line(line: PassLine, done: str, moved: Number, launches: Number, setting: Setting) -> PassLine:
    """Copies that go with an attention line."""
    seconds = setting.timer.copy(moved) if setting.timer is not None else 0.0
    nothing = {"flops": 0.0, "bound_s": 0.0, "covers": 0.0, "ops": ((line.ops[0][0], 0.0),)}
    named = f"{line.what} {done}"
    return replace(line, what=named, hbm_bytes=moved, expected_s=seconds, launches=launches, **nothing)


def _shape(kernel: Kernel, reading: Reading, sizes: dict[str, Number], mesh: Mesh, setting: Setting) -> AttentionShape:
    """Whole sequences of one chip's heads; a chunk of the model's, or a document, is a sequence of its own."""
    section, local = reading.section, local_sizes(kernel.arrays, sizes, mesh)
    heads, length = local.get("n", local.get("i", 1)), sizes["t"]
    for most in (section.chunk, setting.documents):
        length = most if most is not None and most < length else length
    return AttentionShape(
        batch=local["b"] * (sizes["t"] / length),
        queries=length,
        keys=length,
        heads=heads,
        kv_heads=local.get("k", heads),
        head_dim=sizes.get("h", sizes.get("j", 128)),
        v_head_dim=sizes.get("g", sizes.get("h", 128)),
        window=section.span if section.span is not None and section.span < length else None,
        plain=line_takes_flash(section, kernel.op, setting.slice.chip.architecture),
    )


@dataclass(frozen=True)
class _Timed:
    """Seconds of a chip's kernels, where a sequence is split over some chips."""

    timer: Timer
    whole: AttentionShape
    chips: Number
    backward: bool

    def one(self, queries: Number, keys: Number, causal: bool = True) -> Number:
        keys = minimum(keys, self.whole.keys)
        return self.timer.attention(replace(self.whole, queries=queries, keys=keys, causal=causal), self.backward)

    @property
    def chunk(self) -> Number:
        return maximum(self.whole.queries / (2 * self.chips), 1)

    def gathered(self) -> Number:
        """Against all keys: on a chip alone, or the first and the last chunk."""
        chunk, alone = self.chunk, self.one(self.whole.queries, self.whole.keys)
        reach = self.whole.keys if self.whole.window is None else chunk + self.whole.window
        if isinstance(self.chips, int) and self.chips == 1:
            return alone
        return where(self.chips > 1, self.one(chunk, chunk) + self.one(chunk, reach), alone)

    def hopping(self, ring: bool) -> tuple[Number, Number]:
        """One kernel for each chip's keys, and under how much of it keys may travel: those of the next hop under this
        one's; the gradients of keys follow a hop behind, under all kernels. Gathered keys travel under the first."""
        chunk = self.chunk
        if self.whole.window is None:
            own = self.one(2 * chunk, 2 * chunk)
            hop = maximum(self.one(2 * chunk, chunk, causal=False), self.one(chunk, 2 * chunk, causal=False))
        else:
            # All that a window shows lies in the chip's chunks and those next to them; other hops find nothing to do.
            own, hop = 2 * self.one(chunk, chunk + self.whole.window), self.one(1, 1)
        total = own + (self.chips - 1) * hop
        if not ring:
            return total, own * (self.chips > 1)
        return total, total if self.backward else (total - hop) * (self.chips > 1)


def attention_flops(kernel: Kernel, reading: Reading, sizes: dict[str, Number], mesh: Mesh, setting: Setting) -> Number:
    """FLOPs of one pass of attention on a chip: of the pairs that are not masked, backward twice forward; or of the
    whole square, whose backward pass finds the scores again."""
    backward, query = kernel.phase == "dgrad", kernel.arrays[0]
    ways = mesh.size(*query.axes)
    if not setting.stack.kernels.masked_square or kernel.function != "attend":
        section = replace(reading.section, dims=reading.section.dims | sizes)
        work = Workload(sizes["b"], sizes["t"], sizes["s"], documents=setting.documents)
        return op_flops(section, kernel.op, work) / ways * (2 if backward else 1)
    key, value = attention_sizes(kernel, sizes)
    heads = product(sizes[name] for name in query.names[2:-1])
    pairs = 2.0 * sizes["b"] * sizes["t"] * sizes["s"] * heads / ways
    return pairs * (3 * key + 2 * value if backward else key + value)


def attention_sizes(kernel: Kernel, sizes: dict[str, Number]) -> tuple[Number, Number]:
    """Elements of a key and of a value of one head."""
    assert kernel.op.output is not None
    return sizes[kernel.op.inputs[0].names[-1]], sizes[kernel.op.output.names[-1]]
