"""How long a kernel takes: the efficiency profile of a chip's kernels, and what a software stack does with them."""

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
    """What the speed of an attention kernel on one chip depends on. `causal` queries are the last of the keys, and each
    sees the keys up to itself; others see all keys. `window` caps the keys that a query sees. `plain`: a flash kernel
    for plain attention alone supports it."""

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

IDLE_POWER = 0.15
"""The fraction of its power limit that a chip draws at rest."""
POWER_EXPONENT = 2.5
"""Above that, power grows with about this power of the clock, since voltage rises with frequency: a lower limit costs
less than its fraction in speed. Matmuls are assumed to run as fast as power allows."""
MAX_SPEEDUP = 1.1
"""By how much more power than the measured chip had makes matmuls faster at most, relative to their peak."""


def power_factor(chip: Chip, measured: Chip) -> float:
    """How much faster a chip computes, relative to its peak, than the one whose kernels were measured, because of its
    power limit.

    >>> power_factor(load_chip("h100"), load_chip("h100"))
    1.0
    """
    if not measured.power or not chip.power:
        return 1.0
    peak_ratio = chip.peak("bf16") / measured.peak("bf16")
    power_ratio = max((chip.power / measured.power - IDLE_POWER) / (1 - IDLE_POWER), 0.05)
    clock_ratio = power_ratio ** (1 / POWER_EXPONENT)
    return min(clock_ratio / peak_ratio, MAX_SPEEDUP)


@dataclass(frozen=True)
class Timer:
    """Seconds to expect of one kernel on one chip. `narrow` says whether a matmul runs in the plan's dtype or in bf16;
    `modern` GPUs are Hopper and later."""

    profile: KernelProfile
    dtype: str
    stack: Stack
    modern: bool = False
    gpu: bool = True

    def _format(self, narrow: bool) -> str:
        """The format whose measured kernels stand for the matmul's: chips multiply block-scaled formats nearly at the
        speed of plain fp8."""
        if not narrow:
            return "bf16"
        if self.dtype == "mxfp8":
            return "fp8"
        return self.dtype

    def _slowdown(self, narrow: bool) -> float:
        """Seconds of the stack's matmuls over those of the profile."""
        slowdown = self.stack.kernels.matmul
        if narrow and self.dtype == "mxfp8":
            slowdown = slowdown * BLOCK_SCALED
        return slowdown

    def matmul(self, m: Number, n: Number, k: Number, batch: Number, narrow: bool) -> Number:
        """Seconds of (m, k) times (k, n), `batch` times."""
        return matmul_seconds(m, n, k, self._format(narrow), self.profile, batch) * self._slowdown(narrow)

    def grouped(self, rows: Number, n: Number, k: Number, groups: Number, narrow: bool) -> Number:
        """Seconds of a grouped matmul whose rows are shared out evenly over its groups (experts)."""
        groups = maximum(groups, 1)
        seconds = matmul_seconds(maximum(rows / groups, 1), n, k, self._format(narrow), self.profile, groups)
        return seconds * (self.stack.experts.slowdown * self._slowdown(narrow))

    def attention(self, shape: AttentionShape, backward: bool) -> Number:
        """Seconds of attention, forward or backward, with the kernel that the stack has for it."""
        kernels = self.stack.kernels
        if not kernels.flash:
            return self._unfused(shape, backward)
        if kernels.plain_flash and not (shape.plain and self.gpu):
            return self._blocks(shape, backward)
        seconds = attention_seconds(
            shape.batch,
            shape.queries,
            shape.keys,
            shape.heads,
            shape.kv_heads,
            (shape.head_dim + shape.v_head_dim) / 2,  # profiles were measured where both are the same
            "bf16",
            self.profile,
            causal=shape.causal,
            window=shape.window,
            backward=backward,
        )
        slowdown = kernels.attention
        if kernels.legacy_attention and self.modern:
            slowdown = slowdown / LEGACY
        return seconds * slowdown

    def _unfused(self, shape: AttentionShape, backward: bool) -> Number:
        """Scores written out: two batched matmuls over the whole rectangle (four backward), with passes over it for
        scaling, masking, softmax and dropout."""
        heads = shape.batch * shape.heads
        scores = matmul_seconds(shape.queries, shape.keys, shape.head_dim, "bf16", self.profile, heads)
        results = matmul_seconds(shape.queries, shape.v_head_dim, shape.keys, "bf16", self.profile, heads)
        matmuls, passes = 1, 1.0
        if backward:  # two matmuls for each of the forward pass, and more passes over the scores
            matmuls, passes = 2, 1.4
        moved = heads * shape.queries * shape.keys * (self.stack.kernels.square_bytes * passes)
        return (scores + results) * matmuls + memory_seconds(moved, self.profile)

    def _blocks(self, shape: AttentionShape, backward: bool) -> Number:
        """Scores in blocks of queries, in fp32, as XLA compiles them: masks and windows spare nothing."""
        kernels = self.stack.kernels
        moved = kernels.block_backward_bytes if backward else kernels.block_bytes
        heads = (shape.heads, shape.kv_heads, shape.head_dim, shape.v_head_dim)
        return score_block_seconds(
            shape.batch, shape.queries, shape.keys, *heads, self.profile, moved, self.stack.host.layer_s, backward
        )

    def memory(self, moved: Number) -> Number:
        """Seconds of an elementwise kernel that moves so many bytes."""
        return memory_seconds(moved * self.stack.kernels.elementwise_passes, self.profile)

    def stream(self, moved: Number, kernels: float) -> Number:
        """Seconds of kernels that are counted one by one."""
        return memory_seconds(moved, self.profile) + (kernels - 1) * self.profile.stream.launch

    def route(self, moved: Number) -> Number:
        """Seconds to copy tokens on their way to experts, or back."""
        return memory_seconds(moved * self.stack.experts.route_passes, self.profile)

    def cast(self, elements: Number, narrow: bool) -> Number:
        """Seconds to bring activations to the plan's dtype."""
        element_bytes = CAST_BYTES.get(self.dtype, 0.0)
        if not narrow or not element_bytes:
            return 0.0 * elements
        return memory_seconds(elements * element_bytes * self.stack.kernels.cast_passes, self.profile)

    def loss(self, logits: Number) -> Number:
        """Seconds of the cross-entropy over so many logits, forward and backward."""
        return memory_seconds(logits * self.stack.kernels.loss_bytes, self.profile)

    def copy(self, moved: Number) -> Number:
        """Seconds to move bytes at the bandwidth of large copies, without a launch of their own."""
        return moved / (self.profile.bandwidth * self.profile.stream.bandwidth)


def expected_timer(chip: Chip, dtype: str, stack: Stack) -> Timer:
    """The timer that an expectation uses on a chip."""
    library = stack.kernels.library
    rates = (chip.power, tuple(chip.matrix.items()), chip.hbm, tuple(chip.structure.items()))
    key = (library, profile_version(chip), chip.name, chip.like, *rates)
    if key not in _PROFILES:
        if len(_PROFILES) >= MAX_PROFILES:
            _PROFILES.clear()
        _PROFILES[key] = _sustained(chip, library)
    gpu = chip.kind == "gpu"
    profile = heated(_PROFILES[key], stack.kernels.throttle)
    return Timer(profile, dtype, stack, gpu and chip.released >= HOPPER, gpu)


def heated(profile: KernelProfile, factor: float) -> KernelProfile:
    """The same kernels on a chip that is kept busy: power slows them down after `factor` of the measured time."""
    if factor == 1.0:
        return profile
    tables = profile.matmul.by_format.items()
    return replace(
        profile, matmul=Tables({name: replace(table, throttle=table.throttle * factor) for name, table in tables})
    )


_PROFILES: dict[tuple[object, ...], KernelProfile] = {}
MAX_PROFILES = 256  # that are cached: what-if chips may be many

# When the first chip came out whose tensor cores need other instructions than Ampere's.
HOPPER = "2022-09"


def _sustained(chip: Chip, library: str) -> KernelProfile:
    """The chip's kernels at the peaks that its power sustains. A profile that is the user's own, or was measured with
    one library, is of the very chip and stays as it is."""
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
