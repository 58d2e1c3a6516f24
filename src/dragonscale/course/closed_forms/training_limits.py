"""Where training becomes bound by its collectives (book, chapter 5), for a layer of two bf16 matrices D x F and F x D.

What is compared is one layer's compute with what it sends, both at datasheet rates: C is the bf16 peak of a chip, W
both directions of one axis of its torus (under switches, what leaves one chip), M the hardware axes that a mesh axis
spans. D cancels. Where FSDP and tensor parallelism share a torus, FSDP has the axes that tensor parallelism leaves: two
on a v5p, one on a v5e.

>>> from dragonscale.physics.hardware import load_chip
>>> v5p = load_chip("v5p")
>>> fsdp_tokens(v5p, axes=1), fsdp_tokens(v5p), pod_tokens(v5p)
(2550.0, 850.0, 73440.0)
>>> round(tp_degree(v5p, 28672), 2), tp_width(v5p, 8)
(11.24, 20400.0)
>>> round(mixed_tokens(v5p, 28672), 1), round(mixed_degree(v5p, 4.19e6, 28672, 8960))
(113.4, 1618)
>>> round(split_ratio(v5p, 2**20, 28672, 1024, 8), 4), split_tokens(v5p, 32768, 512, 8)
(0.8031, 652800.0)

`find_rules` and `best_split` derive the same from the shardings of any scheme; the tests hold the two against each
other.
"""

from dragonscale.course.closed_forms.rooflines import axis_bandwidth, wire_intensity
from dragonscale.errors import Infeasible, InputError, unknown
from dragonscale.physics.hardware import Chip, Torus
from dragonscale.physics.numbers import Number, maximum


def torus_axes(chip: Chip) -> int:
    """Axes of a chip's torus; one under switches."""
    return chip.network.axes if isinstance(chip.network, Torus) else 1


def _left(chip: Chip, fsdp_axes: Number | None, tp_axes: Number) -> Number:
    """The axes of FSDP: as many as are said, else those that tensor parallelism leaves, at least one."""
    return max(torus_axes(chip) - int(tp_axes), 1) if fsdp_axes is None else fsdp_axes


def fsdp_tokens(chip: Chip, axes: Number | None = None) -> Number:
    """Tokens a chip needs before data parallelism or FSDP over `axes` axes (all of them if not said) hides its
    collectives: C/(M·W)."""
    return wire_intensity(chip) / (torus_axes(chip) if axes is None else axes)


def pod_tokens(chip: Chip) -> Number:
    """Tokens a pod needs before replicas in several pods can reduce their gradients over the data-centre network:
    C/W_dcn."""
    if chip.dcn is None:
        raise InputError(f"The file of {chip.title} gives no data-centre network; TPUs have one.")
    return chip.peak("bf16") / chip.dcn


def tp_degree(chip: Chip, width: Number, axes: Number = 1) -> Number:
    """The largest tensor degree that hides its collectives, whatever the batch: M·F·W/C."""
    return width * axes / wire_intensity(chip)


def tp_width(chip: Chip, degree: Number, axes: Number = 1) -> Number:
    """The narrowest hidden dim F with which a tensor degree hides its collectives."""
    return degree * wire_intensity(chip) / axes


def mixed_tokens(
    chip: Chip, width: Number, fsdp_axes: Number | None = None, tp_axes: Number = 1, overlap: str = "max"
) -> Number:
    """The fewest tokens a chip needs where FSDP and tensor parallelism divide the chips at best: (C/W)²/(M_X·M_Y·F),
    and four times as many if the collectives of the two run one after the other (`overlap="sum"`)."""
    factors = {"max": 1, "sum": 4}
    if overlap not in factors:
        raise unknown("overlap", overlap, factors)
    return factors[overlap] * wire_intensity(chip) ** 2 / (_left(chip, fsdp_axes, tp_axes) * tp_axes * width)


def mixed_degree(
    chip: Chip, tokens: Number, width: Number, chips: Number, fsdp_axes: Number | None = None, tp_axes: Number = 1
) -> Number:
    """The FSDP degree at which FSDP and tensor collectives take equally long, not rounded: √(B/F · M_X/M_Y · N)."""
    return (tokens / width * _left(chip, fsdp_axes, tp_axes) / tp_axes * chips) ** 0.5


def mixed_ratio(
    chip: Chip, tokens: Number, width: Number, chips: Number, fsdp_axes: Number | None = None, tp_axes: Number = 1
) -> Number:
    """Compute over communication at that degree; from 1 on the layer is bound by compute."""
    return (tokens * width * _left(chip, fsdp_axes, tp_axes) * tp_axes / chips) ** 0.5 / wire_intensity(chip)


def split_ratio(
    chip: Chip,
    tokens: Number,
    width: Number,
    fsdp: Number,
    tensor: Number = 1,
    fsdp_axes: Number | None = None,
    tp_axes: Number = 1,
) -> Number:
    """Compute over communication of a split in whole numbers: the longer of F/(Y·M_X) and B/(X·M_Y) against
    BF/(XY·C/W). A degree of one sends nothing."""
    weights = width / (tensor * _left(chip, fsdp_axes, tp_axes)) if fsdp > 1 else 0
    activations = tokens / (fsdp * tp_axes) if tensor > 1 else 0
    if not weights and not activations:
        raise InputError("One chip sends nothing: give an FSDP degree or a tensor degree above 1.")
    return tokens * width / (fsdp * tensor * wire_intensity(chip)) / maximum(weights, activations)


def split_tokens(
    chip: Chip, width: Number, fsdp: Number, tensor: Number = 1, fsdp_axes: Number | None = None, tp_axes: Number = 1
) -> Number:
    """Tokens of a batch from which a split is bound by compute. A tensor degree that is too large for any batch is
    refused."""
    most = tp_degree(chip, width, tp_axes)
    if tensor > 1 and tensor > most:
        raise Infeasible(
            f"A tensor degree of {tensor:g} is bound by communication at any batch: {most:.3g} is the most that "
            f"hides for a width of {width:g}."
        )
    return fsdp * wire_intensity(chip) / _left(chip, fsdp_axes, tp_axes) if fsdp > 1 else 0.0


def layer_seconds(chip: Chip, tokens: Number, d: Number, width: Number, chips: Number = 1, passes: int = 2) -> Number:
    """Seconds that each chip computes: 2BDF FLOPs for each of `passes` matmuls (2 forward, 4
    backward), shared evenly."""
    return 2 * passes * tokens * d * width / (chips * chip.peak("bf16"))


def weight_seconds(
    chip: Chip, d: Number, width: Number, tensor: Number = 1, axes: Number = 1, times: int = 2
) -> Number:
    """Seconds in which FSDP gathers (or scatters) a bf16 matrix D x F `times` times: both weights forward, four
    backward."""
    return 2 * times * d * width / (tensor * axes * axis_bandwidth(chip))


def activation_seconds(
    chip: Chip, tokens: Number, d: Number, fsdp: Number = 1, axes: Number = 1, times: int = 2
) -> Number:
    """Seconds in which tensor parallelism gathers (or scatters) bf16 activations B x D `times` times: twice forward."""
    return 2 * times * tokens * d / (fsdp * axes * axis_bandwidth(chip))
