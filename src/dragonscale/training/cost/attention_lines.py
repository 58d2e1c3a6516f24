"""Attention on one chip as the kernels that run there: one over whole sequences, two where keys are gathered over
`context`, one a hop where they go round a ring.

Over `context` every sequence is cut into 2N chunks, of which chip i has the i-th from the front and the i-th from the
back: under a causal mask all chips then work alike (zigzag, as in TransformerEngine, PyTorch and MaxText). With chunks
of c = t/2N tokens:

- gathered: the two chunks are two kernels, of c queries against the keys up to them. The chip with the first and the
  last chunk is the one that is waited for.
- round a ring: one causal kernel of 2c queries against the chip's own 2c keys, then N − 1 hops, each of 2c queries
  against the first c keys that came, or of the last c queries against all 2c. The result of each hop is merged with
  what was there.
- ulysses: one kernel over whole sequences of fewer heads. Queries, keys, values and results are copied into the order
  of the exchange, and out of it.

Packed documents are sequences of their own: each is cut over `context` by itself (TransformerEngine's `thd`), so all
chips still work alike, on shorter chunks; keys and values travel whole all the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.models.attention import line_takes_flash
from dragonscale.models.flops import Workload, op_flops
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, maximum, minimum, product, where
from dragonscale.physics.sharding.layout import local_elements, local_sizes
from dragonscale.plan.reader import Kernel
from dragonscale.training.plan.setting import LAUNCHES, PassLine, PlacedSection, attending_sizes
from dragonscale.training.plan.timers import AttentionShape, Timer

MERGED_BYTES = {"forward": 10.0, "dgrad": 6.0}
"""Bytes moved to merge one element of a hop's result: results are read and written in fp32, the hop's own read in bf16
(PyTorch's merger; TransformerEngine's adds in bf16 after the last hop); gradients are added in bf16."""
MERGED_PART = 0.75
"""The fraction of queries, and of keys, that a hop computes with: all of one and half of the other, in turns."""
MERGE_LAUNCHES = 2.0
"""Kernels of a merge: results and sums of the softmax; gradients of queries, and of keys and values."""

TRADED_BYTES = 8.0
"""Bytes moved to bring one element of bf16 into the order of an exchange of heads, and what came into the kernel's
(TransformerEngine copies before and after each of its all-to-alls)."""
TRADE_LAUNCHES = 3.0
"""Kernels of an exchange: a copy, the all-to-all, a copy."""


def attention_lines(kernel: Kernel, placed: PlacedSection) -> Iterator[PassLine]:
    """One pass of attention: its kernels, and what merges their results."""
    return _Attention(kernel, placed).lines()


class _Attention:
    """One pass of attention over the sequences of one chip."""

    def __init__(self, kernel: Kernel, placed: PlacedSection) -> None:
        self.kernel = kernel
        self.setting, self.reading, self.mesh = placed.setting, placed.reading, placed.mesh
        self.sizes = attending_sizes(placed.sizes, placed.reading.rules, placed.mesh)
        self.backward = kernel.phase == "dgrad"
        query = kernel.arrays[0]
        self.chips: Number = self.mesh.size(*query.dim("t").axes)  # over which a sequence is split
        rules, kernels = self.reading.rules, self.setting.stack.kernels
        # One kernel for each chip's keys: round a ring, or because the stack has no other.
        self.by_hops = rules.ring or (kernels.hops and not rules.trades)
        self.hops: Number = self.chips - 1 if self.by_hops else 0
        self.plain = line_takes_flash(self.reading.section, kernel.op, self.setting.slice.chip.architecture)

    def lines(self) -> Iterator[PassLine]:
        """The kernel's line, and those of the copies around it."""
        kernel, setting, rules = self.kernel, self.setting, self.reading.rules
        flops, hbm_bytes = 0.0, 0.0
        if setting.detail:
            flops = self.flops()
            hbm_bytes = 2.0 * self._elements(kernel.arrays)
        seconds, cover = self._seconds_and_cover()
        launches = LAUNCHES.get(kernel.function, 1.0)
        if self.by_hops:
            launches = launches * (1 + self.hops) + (self.hops if rules.ring else 0)
        else:
            launches = launches * where(self.chips > 1, 2.0, 1.0)
        query = kernel.arrays[0].name
        line = PassLine(
            self.reading.section.name,
            kernel.phase,
            query if kernel.phase == "forward" else f"d{query}",
            "attention",
            part="scores",
            flops=flops,
            hbm_bytes=hbm_bytes,
            bound_s=flops / setting.slice.chip.peak("bf16"),
            expected_s=seconds,
            ops=((kernel.line, flops),),
            launches=launches,
            covers=cover,
            kept=setting.stack.kernels.plain_flash and setting.slice.chip.kind == "gpu" and self.plain,
        )
        yield line
        if self.by_hops:
            yield self._copy_line(line, "merged", self._merged_bytes(), MERGE_LAUNCHES * self.hops)
        if rules.trades:
            # 1 where heads are exchanged for the sequence, which copies tensors before and after.
            traded_axes = (axis for axis in rules.attend_heads if axis not in rules.heads)
            exchanged = self.mesh.size(*traded_axes) > 1
            moved = exchanged * TRADED_BYTES * self._elements(kernel.arrays)
            yield self._copy_line(line, "traded", moved, exchanged * TRADE_LAUNCHES * len(kernel.arrays))

    def _elements(self, arrays: tuple[Array, ...]) -> Number:
        return sum(local_elements(array, self.sizes, self.mesh) for array in arrays)

    def _seconds_and_cover(self) -> tuple[Number, Number]:
        """Expected seconds, and under how many of them keys and values may travel over `context`."""
        timer = self.setting.timer
        if timer is None:
            return 0.0, 0.0
        timed = _TimedAttention(timer, self._shape(), self.chips, self.backward)
        if self.by_hops:
            return timed.hopping(self.reading.rules.ring)
        return timed.gathered(), 0.0

    def _shape(self) -> AttentionShape:
        """Whole sequences of one chip's heads. A chunk of the model's own (chunked attention), or a document, is a
        sequence of its own."""
        section, sizes = self.reading.section, self.sizes
        local = local_sizes(self.kernel.arrays, sizes, self.mesh)
        length = sizes["t"]
        for limit in (section.chunk, self.setting.documents):
            if limit is not None and limit < length:
                length = limit
        heads = local.get("n", local.get("i", 1))
        window = section.span
        if window is not None and window >= length:
            window = None  # it shows every key
        return AttentionShape(
            batch=local["b"] * (sizes["t"] / length),
            queries=length,
            keys=length,
            heads=heads,
            kv_heads=local.get("k", heads),
            head_dim=sizes.get("h", sizes.get("j", 128)),
            v_head_dim=sizes.get("g", sizes.get("h", 128)),
            window=window,
            plain=self.plain,
        )

    def flops(self) -> Number:
        """FLOPs on a chip: of the pairs that are not masked, backward twice forward; or of the whole square, whose
        backward pass computes the scores again."""
        kernel, sizes = self.kernel, self.sizes
        query = kernel.arrays[0]
        ways = self.mesh.size(*query.axes)
        if not self.setting.stack.kernels.masked_square or kernel.function != "attend":
            section = replace(self.reading.section, dims=self.reading.section.dims | sizes)
            work = Workload(sizes["b"], sizes["t"], sizes["s"], documents=self.setting.documents)
            return op_flops(section, kernel.op, work) / ways * (2 if self.backward else 1)
        key, value = head_sizes(kernel, sizes)
        heads = product(sizes[name] for name in query.names[2:-1])
        pairs = 2.0 * sizes["b"] * sizes["t"] * sizes["s"] * heads / ways
        # Forward: scores and results. Backward: scores again, and the gradients of both operands of both matmuls.
        return pairs * (3 * key + 2 * value if self.backward else key + value)

    def _merged_bytes(self) -> Number:
        """Bytes moved to put partial results together after each hop but the first; backward, the gradients of queries,
        keys and values."""
        query, *keys, result = self.kernel.arrays
        merged = (result,)
        if self.kernel.phase != "forward":
            merged = (query, *(self.reading.rules.activation(key) for key in keys))
        return self.hops * MERGED_PART * MERGED_BYTES[self.kernel.phase] * self._elements(merged)

    def _copy_line(self, line: PassLine, done: str, moved: Number, launches: Number) -> PassLine:
        """Copies that go with an attention line."""
        seconds: Number = 0.0
        if self.setting.timer is not None:
            seconds = self.setting.timer.copy(moved)
        return replace(
            line,
            what=f"{line.what} {done}",
            hbm_bytes=moved,
            expected_s=seconds,
            launches=launches,
            flops=0.0,
            bound_s=0.0,
            covers=0.0,
            ops=((line.ops[0][0], 0.0),),
        )


@dataclass(frozen=True)
class _TimedAttention:
    """Seconds of the kernels on one chip where sequences of the shape `whole` are split over some `chips`."""

    timer: Timer
    whole: AttentionShape
    chips: Number
    backward: bool

    def kernel(self, queries: Number, keys: Number, causal: bool = True) -> Number:
        """Seconds of one kernel."""
        keys = minimum(keys, self.whole.keys)
        return self.timer.attention(replace(self.whole, queries=queries, keys=keys, causal=causal), self.backward)

    @property
    def chunk(self) -> Number:
        """Tokens of one of the 2N chunks of a sequence."""
        return maximum(self.whole.queries / (2 * self.chips), 1)

    def gathered(self) -> Number:
        """Seconds against all keys: on a chip alone, or for the first and the last chunk."""
        unsplit = self.kernel(self.whole.queries, self.whole.keys)
        if isinstance(self.chips, int) and self.chips == 1:
            return unsplit
        chunk, reach = self.chunk, self.whole.keys
        if self.whole.window is not None:
            reach = chunk + self.whole.window  # keys that the last chunk can see
        return where(self.chips > 1, self.kernel(chunk, chunk) + self.kernel(chunk, reach), unsplit)

    def hopping(self, ring: bool) -> tuple[Number, Number]:
        """Seconds of one kernel for each chip's keys, and under how many of them keys may travel: those of the next hop
        under this one's; the gradients of keys follow a hop behind, under all kernels. Gathered keys travel under the
        first."""
        chunk = self.chunk
        if self.whole.window is None:
            local = self.kernel(2 * chunk, 2 * chunk)
            first_keys = self.kernel(2 * chunk, chunk, causal=False)
            last_queries = self.kernel(chunk, 2 * chunk, causal=False)
            hop = maximum(first_keys, last_queries)
        else:
            # A window reaches from the chip's chunks to those next to them; other hops have nothing to compute.
            local, hop = 2 * self.kernel(chunk, chunk + self.whole.window), self.kernel(1, 1)
        total = local + (self.chips - 1) * hop
        if not ring:
            return total, local * (self.chips > 1)
        return total, total if self.backward else (total - hop) * (self.chips > 1)


def head_sizes(kernel: Kernel, sizes: dict[str, Number]) -> tuple[Number, Number]:
    """Elements of a key and of a value of one head."""
    assert kernel.op.output is not None
    return sizes[kernel.op.inputs[0].names[-1]], sizes[kernel.op.output.names[-1]]
