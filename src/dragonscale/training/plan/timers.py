"""How long a kernel takes, as an efficiency profile and a stack's habits have it."""

from dataclasses import dataclass, replace

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.catalogue import load_chip
from dragonscale.physics.kernels import (
    KernelProfile,
    attention_seconds,
    kernel_profile_for,
    matmul_seconds,
    memory_seconds,
)
from dragonscale.physics.kernels.profile import Tables
from dragonscale.physics.kernels.profile_file import profile_version
from dragonscale.physics.kernels.score_blocks import score_block_seconds
from dragonscale.physics.numbers import Number, maximum
from dragonscale.training.plan.stack import Stack


@dataclass(frozen=True)
class AttentionShape:
    """What decides how fast an attention kernel runs on one chip: of `causal` queries, which are the last of the keys,
    each sees the keys up to itself, of others all. `window` caps the keys that a query sees. `plain`: a flash kernel
    that takes nothing unusual takes it."""

    batch: Number
    queries: Number
    keys: Number
    heads: Number
    kv_heads: Number
    head_dim: Number
    v_head_dim: Number
    window: Number = None
    causal: bool = True
    plain: bool = True


CAST_BYTES = {"fp8": 5.0, "mxfp8": 4.0, "nvfp4": 5.0, "mxfp4": 4.0, "int8": 3.0}
"""Bytes moved for each activation that is brought to a narrow format: read in bf16, written along rows and columns, and
read once more where a scale for the whole tensor must be found first."""

BLOCK_SCALED = 1.07
"""Seconds of a matmul in mxfp8 over those in fp8 with one scale per tensor: scales are laid out and applied for every
32 elements (Megatron-Bridge publishes both for the same runs: 4% to 10% apart)."""

LEGACY = 0.47
"""The part of the rate of today's attention kernels that Hopper and later chips reach with the instructions of Ampere,
which kernels before FlashAttention-3 use (Shah et al. 2024: FlashAttention-2 reaches 35% of an H100, FlashAttention-3
75%)."""

IDLE = 0.15
STEEP = 2.5
"""A chip at rest draws about 15% of its limit; above that, power grows with the clock to about this power (voltage
rises with frequency), so a lower limit costs less than its part in speed. Matmuls are taken to run as fast as power
allows."""
MOST = 1.1
"""More power than the measured chip had makes matmuls at most this much faster for their peak."""


def power_factor(chip: Chip, measured: Chip) -> float:
    """How much faster a chip computes than the one whose kernels were measured, for its peak, because of its power.

    >>> power_factor(load_chip("h100"), load_chip("h100"))
    1.0
    """
    if not measured.power or not chip.power:
        return 1.0
    quicker = chip.peak("bf16") / measured.peak("bf16")
    allowed = max((chip.power / measured.power - IDLE) / (1 - IDLE), 0.05) ** (1 / STEEP)
    return min(allowed / quicker, MOST)


@dataclass(frozen=True)
class Timer:
    """Seconds to expect of one kernel on one chip, as its efficiency profile and the stack's habits have them. `narrow`
    says whether a matmul runs in the plan's dtype or in bf16."""

    profile: KernelProfile
    dtype: str
    stack: Stack
    modern: bool = False
    gpu: bool = True

    def _format(self, narrow: bool) -> str:
        """The kernels that run: chips with block-scaled formats multiply them nearly at the speed of plain fp8."""
        return ("fp8" if self.dtype == "mxfp8" else self.dtype) if narrow else "bf16"

    def _slow(self, narrow: bool) -> float:
        return self.stack.kernels.matmul * (BLOCK_SCALED if narrow and self.dtype == "mxfp8" else 1.0)

    def matmul(self, m: Number, n: Number, k: Number, batch: Number, narrow: bool) -> Number:
        return matmul_seconds(m, n, k, self._format(narrow), self.profile, batch) * self._slow(narrow)

    def grouped(self, rows: Number, n: Number, k: Number, groups: Number, narrow: bool) -> Number:
        groups = maximum(groups, 1)
        seconds = matmul_seconds(maximum(rows / groups, 1), n, k, self._format(narrow), self.profile, groups)
        return seconds * (self.stack.experts.slowdown * self._slow(narrow))

    def attention(self, shape: AttentionShape, backward: bool) -> Number:
        if not self.stack.kernels.flash:
            return self._unfused(shape, backward)
        if self.stack.kernels.plain_flash and not (shape.plain and self.gpu):
            return self._blocks(shape, backward)
        size = (shape.head_dim + shape.v_head_dim) / 2
        sizes = (shape.batch, shape.queries, shape.keys, shape.heads, shape.kv_heads, size)
        masks = {"causal": shape.causal, "window": shape.window}
        seconds = attention_seconds(*sizes, "bf16", self.profile, **masks, backward=backward)
        slow = self.stack.kernels.attention / (LEGACY if self.stack.kernels.legacy_attention and self.modern else 1.0)
        return seconds * slow

    def _unfused(self, shape: AttentionShape, backward: bool) -> Number:
        """Scores written out: two batched matmuls over the whole rectangle (four backward), with passes over it for
        scaling, masking, softmax and dropout."""
        many = shape.batch * shape.heads
        first = matmul_seconds(shape.queries, shape.keys, shape.head_dim, "bf16", self.profile, many)
        second = matmul_seconds(shape.queries, shape.v_head_dim, shape.keys, "bf16", self.profile, many)
        square = many * shape.queries * shape.keys
        moved = square * (self.stack.kernels.square_bytes * (1.4 if backward else 1.0))
        return (first + second) * (2 if backward else 1) + memory_seconds(moved, self.profile)

    def _blocks(self, shape: AttentionShape, backward: bool) -> Number:
        """Scores in blocks of queries, in fp32, as XLA compiles them: masks and windows spare nothing."""
        habits = self.stack.kernels
        moved = habits.block_backward_bytes if backward else habits.block_bytes
        heads = (shape.heads, shape.kv_heads, shape.head_dim, shape.v_head_dim)
        return score_block_seconds(
            shape.batch, shape.queries, shape.keys, *heads, self.profile, moved, self.stack.host.layer_s, backward
        )

    @property
    def _rate(self) -> float:
        return self.profile.bandwidth * self.profile.stream.bandwidth

    def memory(self, moved: Number) -> Number:
        return memory_seconds(moved * self.stack.kernels.elementwise_passes, self.profile)

    def stream(self, moved: Number, kernels: float) -> Number:
        """Seconds of kernels that are counted one by one."""
        return memory_seconds(moved, self.profile) + (kernels - 1) * self.profile.stream.launch

    def route(self, moved: Number) -> Number:
        return memory_seconds(moved * self.stack.experts.route_passes, self.profile)

    def cast(self, elements: Number, narrow: bool) -> Number:
        per = CAST_BYTES.get(self.dtype, 0.0) if narrow else 0.0
        return memory_seconds(elements * per * self.stack.kernels.cast_passes, self.profile) if per else 0.0 * elements

    def loss(self, logits: Number) -> Number:
        return memory_seconds(logits * self.stack.kernels.loss_bytes, self.profile)

    def copy(self, moved: Number) -> Number:
        return moved / self._rate


def expected_timer(chip: Chip, dtype: str, stack: Stack) -> Timer:
    """The timer that an expectation uses on a chip."""
    library = stack.kernels.library
    rates = (chip.power, tuple(chip.matrix.items()), chip.hbm, tuple(chip.structure.items()))
    key = (library, profile_version(chip), chip.name, chip.like, *rates)
    if key not in _PROFILES:
        if len(_PROFILES) >= KEPT:
            _PROFILES.clear()
        _PROFILES[key] = _sustained(chip, library)
    gpu = chip.kind == "gpu"
    profile = heated(_PROFILES[key], stack.kernels.throttle)
    return Timer(profile, dtype, stack, gpu and chip.released >= HOPPER, gpu)


def heated(profile: KernelProfile, part: float) -> KernelProfile:
    """The same kernels on a chip that is kept busy."""
    if part == 1.0:
        return profile
    hot = {name: replace(table, throttle=table.throttle * part) for name, table in profile.matmul.by_format.items()}
    return replace(profile, matmul=Tables(hot))


_PROFILES: dict[tuple[object, ...], KernelProfile] = {}
KEPT = 256
"""Profiles that are kept, at most: what-if chips may be many."""
HOPPER = "2022-09"
"""When the first chip came out whose tensor cores want other instructions than Ampere's."""


def _sustained(chip: Chip, library: str) -> KernelProfile:
    """The chip's kernels at the peaks that its power sustains; a profile that was measured with one library, or is the
    user's own, is of the very chip."""
    profile = kernel_profile_for(chip, library=library)
    try:
        measured = load_chip(profile.name)
    except InputError:
        return profile
    design = load_chip(chip.like) if chip.like else chip
    # A what-if chip that draws what its base draws reaches the same part of its peaks: it is another design, not
    # another clock.
    factor = power_factor(design if design.power == chip.power else chip, measured)
    slower = replace(chip, matrix={name: rate * factor for name, rate in chip.matrix.items()})
    return kernel_profile_for(slower, library=library)
