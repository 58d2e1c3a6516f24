"""Chips, meshes and collectives as problems name them.

A problem takes a chip's own default facts (`load_chip`). One that works a result of the book out anew on a GPU takes
the book's round figures of every chip that the book has (`book_chip`), states them, and checks with `--source book`.
"""

# ruff: noqa: F401  what is imported here may stand in a problem

from dataclasses import replace
from functools import cache

from dragonscale.course.closed_forms.chip_parts import WARP, available_flops
from dragonscale.course.closed_forms.rooflines import axis_bandwidth, wire_intensity
from dragonscale.course.words import a, amount, count, number, some
from dragonscale.errors import InputError
from dragonscale.physics.collectives import EXACT, Options, Ring, Rings, Switches, collective_time, wire_bytes
from dragonscale.physics.collectives.cost import BOOK
from dragonscale.physics.collectives.ring_steps import shard_held
from dragonscale.physics.hardware import Chip, Slice, Torus, dtype_bytes, load_chip, parse_slice
from dragonscale.physics.hardware.chip import Level
from dragonscale.physics.hardware.fat_tree import TreeSwitch, load_switch, node_tier
from dragonscale.physics.hardware.slices import chips_to_hold
from dragonscale.physics.kernels.dtypes import FORMATS, format_name
from dragonscale.physics.notation import Array, parse_array, parse_einsum
from dragonscale.physics.rooflines import (
    Cost,
    Rates,
    Roofline,
    array_bytes,
    attainable,
    einsum_cost,
    rates_of,
    roofline,
)
from dragonscale.physics.rooflines.elementwise import flops_per_element
from dragonscale.physics.rooflines.operation import parse_operation
from dragonscale.physics.sharding import Mesh, local_bytes, local_shape, replicated_over, strategies
from dragonscale.physics.sharding.algebra import Strategy, backward, derive
from dragonscale.physics.sharding.layout import block_of, total_bytes
from dragonscale.physics.sharding.mesh import make_mesh, natural_mesh
from dragonscale.physics.sharding.partition_spec import partition_spec_text
from dragonscale.physics.units import parse


@cache
def book_chip(name: str) -> Chip:
    """A chip by the book's figures; one that the book does not have, by its own.

    >>> book_chip("h100").peak("bf16"), book_chip("b300") == load_chip("b300")
    (990000000000000.0, True)
    """
    try:
        return load_chip(name).reading("book")
    except InputError:
        return load_chip(name)


def book_flag(name: str) -> str:
    """The flag that makes a command take the figures of `book_chip`; none where they are the chip's own.

    >>> book_flag("h100"), book_flag("b300")
    (' --source book', '')
    """
    return " --source book" if book_chip(name) != load_chip(name) else ""


def peak_and_hbm(name: str, dtype: str = "bf16") -> tuple[Chip, float, float]:
    """A chip, its peak rate in a format and the bandwidth of its HBM."""
    chip = load_chip(name)
    return chip, float(chip.peak(dtype)), float(chip.bandwidth("hbm"))


def roofline_rates(name: str, dtype: str = "bf16") -> str:
    """The two rates of a roofline, as a problem states them."""
    chip, peak, hbm = peak_and_hbm(name, dtype)
    return f"{chip.title}: {amount(peak, 'FLOP/s')} in {dtype}, HBM at {amount(hbm, 'bytes/s')}"


def rates_sentence(chip: Chip, compute: str = "bf16") -> str:
    """A sentence with the peak of a format and the bandwidth of HBM."""
    peak, hbm = amount(chip.peak(compute), "FLOP/s"), amount(chip.bandwidth("hbm"), "bytes/s")
    return f"{a(chip.name).capitalize()} does {peak} in {compute} and reads {hbm} from HBM."


def bandwidth_sentence(chip: Chip) -> str:
    """A sentence with the bandwidth of HBM alone."""
    return f"{a(chip.name).capitalize()} reads {amount(chip.bandwidth('hbm'), 'bytes/s')} from HBM."


def bytes_in_words(dtype: str) -> str:
    """How many bytes one number of a format takes."""
    each = dtype_bytes(dtype)
    return "half a byte" if each == 0.5 else "1 byte" if each == 1 else f"{each:g} bytes"


def torus_of(chip: Chip) -> Torus:
    """The network of a TPU."""
    assert isinstance(chip.network, Torus)
    return chip.network


def chip_and_link(name: str) -> tuple[Chip, float]:
    """A TPU and one direction of one of its links."""
    chip = load_chip(name)
    return chip, torus_of(chip).link


def link_and_hop(name: str) -> tuple[float, float]:
    """One direction of a TPU's link, and the time of a hop."""
    network = torus_of(load_chip(name))
    return float(network.link), float(network.hop_latency)


def chip_with_axes(name: str, axes: int) -> Chip | None:
    """The chip, unless its torus has fewer axes."""
    chip = load_chip(name)
    return chip if axes <= getattr(chip.network, "axes", 0) else None


def link_words(link: float) -> str:
    """A link's two directions in words."""
    both = amount(2 * link, "bytes/s")
    return f"{amount(link, 'bytes/s')} in each direction of a link, {both} both ways along an axis"


def axis_rates(chip: Chip) -> str:
    """A TPU's two rates, as a question tells them."""
    peak, sent = amount(chip.peak("bf16"), "FLOP/s"), amount(axis_bandwidth(chip), "bytes/s")
    return f"A {chip.name} does {peak} in bf16 and sends {sent} over both directions of one axis"


def wire_sentence(chip: Chip) -> str:
    """C/W as a question tells it."""
    return (
        f"On a {chip.name} C/W, bf16 FLOPs done while one byte crosses an axis of the torus (both directions used), is "
        f"{number(wire_intensity(chip))}; collectives take V/W, without the (N-1)/N"
    )


def slice_and_host(text: str) -> tuple[Slice, str]:
    """A slice, and the chips of one of its hosts as `2x2`."""
    torus = parse_slice(text)
    return torus, "x".join(map(str, torus.chip.host_shape))


def far_corner(text: str) -> tuple[int, ...]:
    """The last chip of a slice along every axis.

    >>> far_corner("v5e:4x8")
    (3, 7)
    """
    return tuple(size - 1 for size in parse_slice(text).shape)


def node_of(chip: str) -> Switches:
    """A whole node of a GPU."""
    levels = load_chip(chip).network.levels  # pyright: ignore[reportAttributeAccessIssue]
    return Switches(levels[0].degree, levels)


def tier_rates(chip: str) -> str:
    """How fast a GPU's first two tiers of switches are, as a question tells it."""
    node, leaf, *_ = node_of(chip).levels
    return (
        f"A GPU sends {amount(node.bandwidth, 'bytes/s')} inside its node of {node.degree}, a node "
        f"{amount(leaf.bandwidth, 'bytes/s')} into the leaf switches; the spine is not the limit"
    )


def peak_and_tier(name: str, tier: int) -> tuple[float, float]:
    """The peak in bf16 and what one child of a tier sends, a GPU (0) or a node (1), by the book's figures."""
    chip = book_chip(name)
    levels = chip.network.levels  # pyright: ignore[reportAttributeAccessIssue]
    return float(chip.peak("bf16")), float(levels[tier].bandwidth)


def sizes_text(values: dict[str, int], apart: str = ",") -> str:
    """`X=8,Y=2`, as flags take it.

    >>> sizes_text({"X": 8, "Y": 2}), sizes_text({"B": 64, "D": 128}, ", ")
    ('X=8,Y=2', 'B=64, D=128')
    """
    return apart.join(f"{name}={value}" for name, value in values.items())


def mesh_call(mesh: dict[str, int]) -> str:
    """A mesh as JAX makes it."""
    return f"jax.make_mesh({tuple(mesh.values())}, {tuple(mesh)})"


def shard_steps(array: Array, sizes: dict[str, int], mesh: Mesh) -> tuple[str, ...]:
    """How a chip's share of an array is worked out, dim by dim."""
    shape = local_shape(array, sizes, mesh)
    dims = [
        f"{dim.name}: {sizes[dim.name]:,} / {mesh.size(*dim.axes)} = {length:,}"
        for dim, length in zip(array.dims, shape, strict=True)
    ]
    size, held = dtype_bytes(array.dtype), local_bytes(array, sizes, mesh)
    product = " · ".join(map(count, shape))
    return (*dims, f"{product} · {size:g} bytes = {count(held)} bytes = {amount(held, 'bytes')}")


def way_with(collective: str, line: str, sizes: dict[str, int], mesh: Mesh) -> Strategy:
    """The way to compute an einsum that needs this collective and no other."""
    ways = strategies(parse_einsum(line), sizes, mesh)
    return next(way for way in ways if [step.kind for step in way.collectives] == [collective])


def halves(chip: str) -> tuple[Mesh, Strategy, float]:
    """The summed dim split over two chips joined by one link, the way that adds up the halves, and the link."""
    machine, link = chip_and_link(chip)
    mesh = Mesh({"X": 2}, machine, rings={"X": (Ring(2, wrap=False),)})
    line = "X:bf16[B, D_X] @ Y:bf16[D_X, F] -> Z:bf16[B, F]"
    return mesh, way_with("all_reduce", line, {"B": 1024, "D": 8192, "F": 8192}, mesh), float(link)


def times_of_halves(chip: str, batch: int, model: int, hidden: int) -> tuple[float, float]:
    """Seconds that each chip multiplies, and that the partial sums travel."""
    mesh, way, _ = halves(chip)
    sizes = {"B": batch, "D": model, "F": hidden}
    [exchange] = way.step_seconds(sizes, mesh, Options())
    return float(way.math_seconds(sizes, mesh)), float(exchange.bandwidth)


def side_by_side(matmul: float, comms: float) -> Roofline:
    """A matmul and a collective of these times, as a roofline."""
    cost = Cost(flops={("matrix", "bf16"): matmul}, wire={"Y": comms})
    return roofline(cost, Rates(flops={("matrix", "bf16"): 1.0}, wire={"Y": 1.0}))


def int8_turn(chip: str, memory: str, model: int, hidden: int) -> float:
    """The batch at which an int8 matmul, all its bytes counted, turns from memory-bound to compute-bound."""
    line, rates = parse_einsum("int8[B,D] @ int8[F,D] -> int8[B,F]"), rates_of(load_chip(chip))
    none, one = (
        roofline(einsum_cost(line, {"B": batch, "D": model, "F": hidden}, level=memory), rates).seconds
        for batch in (0, 1)
    )
    gain = float((one["matrix"] - none["matrix"]) - (one[memory] - none[memory]))
    return float(none[memory]) / gain if gain > 0 else 0.0
