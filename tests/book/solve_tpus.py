"""Solutions of the chapter on TPUs: what the chips are and how they are joined. The problems are in
`solve_tpus_problems`."""

import math
from typing import Any

from dragonscale.course.closed_forms.chip_parts import (
    core_peak,
    filling_side,
    reduction_shifts,
    systolic_flops,
    vector_alus,
)
from dragonscale.course.closed_forms.costs import padded
from dragonscale.physics.collectives import Options, Ring, Rings, collective_time
from dragonscale.physics.hardware import Chip, Slice, Torus, axis_diameter, links_of, load_chip, parse_slice
from dragonscale.physics.hardware.parts import matrix_tile, structural_peak
from dragonscale.physics.hardware.slices import possible_shapes
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.rooflines import symbol
from tests.book import solve_tpus_problems  # noqa: F401  (registers its solvers)
from tests.book.casebook import Both, solves
from tests.book.solve_roofline import book_chip

GENERATIONS = ("v3", "v4p", "v5p", "v5e", "v6e", "tpu7x")


def book(name: str) -> Chip:
    return load_chip(name).reading("book")


def torus(chip: Chip) -> Torus:
    assert isinstance(chip.network, Torus)
    return chip.network


def text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def the_only(values: Any) -> Any:
    """The value that all agree on."""
    [value] = set(values)
    return value


@solves("tpus.spec_v3", "tpus.spec_v4p", "tpus.spec_v6e", "tpus.spec_tpu7x")
def spec(given: dict[str, Any]) -> dict[str, Any]:
    chip = book(given["chip"])
    network = torus(chip)
    ring = Rings((Ring(16),), network.link)
    return {
        "pod": text(network.pod),
        "host_topology": text(chip.host_shape),
        "hbm_capacity": chip.hbm.capacity,
        "hbm_bw": chip.bandwidth("hbm"),
        "bf16": chip.peak("bf16"),
        "int8": chip.peak("int8"),
        "ici_link_oneway": network.link,
        "ici_link_bidi": 1 / collective_time("all_gather", 1, ring).bandwidth,
        "pcie_per_tpu": chip.bandwidth("pcie"),
        "dcn_per_tpu": chip.bandwidth("dcn"),
    }


@solves("tpus.pod_chip_counts")
def pod_chips(given: dict[str, Any]) -> dict[str, Any]:
    assert all(text(torus(book(name)).pod) == pod for name, pod in given["pods"].items())
    return {name: Slice(book(name), torus(book(name)).pod).chips for name in given["pods"]}


@solves("tpus.torus_rank")
def torus_rank(_: dict[str, Any]) -> dict[str, Any]:
    def wiring(name: str) -> str:
        pod = Slice(load_chip(name), torus(load_chip(name)).pod)
        return f"{len(pod.shape)}D torus, {links_of(pod, (0,) * len(pod.shape))} neighbours"

    return {
        "v2_v3_v5e_v6e": the_only(map(wiring, ("v2", "v3", "v5e", "v6e"))),
        "v4_v5p": the_only(map(wiring, ("v4", "v5p"))),
    }


@solves("tpus.mxu_flops")
def mxu_flops(given: dict[str, Any]) -> dict[str, Any]:
    (rows, inner), (_, columns) = given["lhs"], given["rhs"]
    line = parse_einsum(f"bf16[{rows},{inner}] @ bf16[{inner},{columns}]")
    a_cycle = systolic_flops(*given["rhs"])
    assert line.flops(dict(line.sizes)) == a_cycle * given["cycles"], "a row of the left operand enters in each cycle"
    return {"mxu_flops": a_cycle * given["clock"]}


@solves("tpus.v5e_chip_flops_from_mxu")
def v5e_from_mxus(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v5e", given, mxus="structure.mxus_per_core", clock="structure.clock")
    return {"chip_flops": structural_peak(chip)}


@solves("tpus.v5e_int8_rate")
def v5e_int8(_: dict[str, Any]) -> dict[str, Any]:
    return {"int8": book("v5e").peak("int8")}


@solves("tpus.low_precision_factor")
def low_precision(_: dict[str, Any]) -> dict[str, Any]:
    chip = book("v5e")
    factors = {dtype: chip.peak(dtype) / chip.peak("bf16") for dtype in ("int8", "int4")}
    return factors | {"vpu_dtype": the_only(chip.vector)}


@solves("tpus.v5p_pod_flops")
def v5p_pod(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v5p", given, per_chip="matrix.bf16")
    pod = Slice(chip, torus(chip).pod)
    assert pod.chips == given["chips"]
    return {"pod_flops": pod.flops}


@solves("tpus.v5p_core_flops")
def v5p_core(_: dict[str, Any]) -> dict[str, Any]:
    return {"per_core": core_peak(book("v5p")), "per_chip": structural_peak(book("v5p"))}


@solves("tpus.vmem_critical_intensity")
def vmem_intensity(given: dict[str, Any]) -> dict[str, Any]:
    chip = book("v5e")
    assert math.isclose(chip.bandwidth("vmem"), given["vmem_ratio"] * chip.bandwidth("hbm"))
    by_dtype = [chip.intensity(dtype, level="vmem") for dtype in ("bf16", "int8")]
    # The book says "10-20": the intensities for bf16 and for int8 to one digit.
    return {"intensity": by_dtype[0], "range": [float(f"{value:.0e}") for value in by_dtype]}


@solves("tpus.pcie_vs_hbm_v4")
def pcie_vs_hbm(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v4", given, pcie="pcie", hbm="memory.hbm.bandwidth")
    return {"ratio": chip.bandwidth("hbm") / chip.bandwidth("pcie")}


@solves("tpus.cores_per_chip")
def cores(_: dict[str, Any]) -> dict[str, Any]:
    return {name: book(name).structure["cores"] for name in ("v5e", "v5p")}


@solves("tpus.chips_per_tray_and_host")
def trays(_: dict[str, Any]) -> dict[str, Any]:
    def tray(name: str) -> int:
        """The smallest slice of several chips is a tray."""
        return min(chips for chips in map(math.prod, possible_shapes(load_chip(name))) if chips > 1)

    return {
        "tray": the_only(map(tray, ("v4", "v5p", "v5e", "v6e"))),
        "host_v4_v5p": the_only(book(name).host_chips for name in ("v4", "v5p")),
        "host_v5e": book("v5e").host_chips,
    }


@solves("tpus.torus_diameter")
def torus_diameter(given: dict[str, Any]) -> dict[str, Any]:
    size = given["N"]
    return {
        "no_wrap_exact": axis_diameter(size, wraps=False),
        "wrap": Both(axis_diameter(symbol("N"), wraps=True), axis_diameter(size, wraps=True)),
    }


@solves(
    "tpus.wraparound_v5e_16x16",
    "tpus.wraparound_v6e_8x8",
    "tpus.wraparound_v5p_4x4x4",
    "tpus.wraparound_v5p_2x2x1",
    "tpus.wraparound_v5p_2x2x2",
    "tpus.wraparound_v5p_2x2x4",
)
def wraps(given: dict[str, Any]) -> dict[str, Any]:
    return {"wraparound": list(parse_slice(f"{given['chip']}:{text(tuple(given['topology']))}").wrap)}


@solves("tpus.no_wrap_penalty")
def no_wrap_penalty(_: dict[str, Any]) -> dict[str, Any]:
    link = torus(book("v5e")).link
    ring, line = (Rings((Ring(16, wrap),), link) for wrap in (True, False))
    kinds = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
    seconds = {
        kind: [collective_time(kind, 1e9, g, Options(exact=True)).bandwidth for g in (line, ring)] for kind in kinds
    }
    return {"factor": the_only(without / with_ring for without, with_ring in seconds.values())}


@solves("tpus.v5p_bandwidths")
def v5p_bandwidths(_: dict[str, Any]) -> dict[str, Any]:
    chip = book("v5p")
    network = torus(chip)
    return {
        "hbm": chip.bandwidth("hbm"),
        "ici_per_axis_oneway": network.link,
        "axes": network.axes,
        "dcn": chip.bandwidth("dcn"),
    }


@solves("tpus.bandwidth_order")
def bandwidth_order(_: dict[str, Any]) -> dict[str, Any]:
    def order(name: str) -> tuple[str, ...]:
        chip = book(name)
        speeds = {level: chip.bandwidth(level.lower()) for level in ("HBM", "PCIe", "DCN")}
        speeds["ICI"] = torus(chip).link
        return tuple(sorted(speeds, key=lambda level: -speeds[level]))

    return {"order": list(the_only(map(order, GENERATIONS)))}


@solves("tpus.ici_bidi_meaning")
def full_rings(_: dict[str, Any]) -> dict[str, Any]:
    """Axis lengths on which an AllGather gets both directions, over all slices that can be had."""

    def lengths(name: str) -> list[int]:
        chip = load_chip(name)
        axes = {
            (size, wrap)
            for shape in possible_shapes(chip)
            for size, wrap in zip(shape, Slice(chip, shape).wrap, strict=True)
        }
        both = [size for size, wrap in axes if Ring(size, wrap).links == 2]
        assert sorted(both) == sorted(size for size, wrap in axes if wrap)
        return both

    flat = the_only(size for name in ("v5e", "v6e") for size in lengths(name))
    cubes = the_only(math.gcd(*lengths(name)) for name in ("v4", "v5p"))
    condition = f"only when the axis is a full ring (wraparound): size {flat} on v5e/v6e, multiple of {cubes} on v*p"
    return {"condition": condition}


@solves("tpus.mxu_padding")
def mxu_padding(given: dict[str, Any]) -> dict[str, Any]:
    shape, useful = padded(given["shape"], [given["mxu"]] * 2)
    return {
        "v5_and_older": the_only(
            side for name in ("v2", "v3", "v4", "v5e", "v5p") for side in matrix_tile(load_chip(name))
        ),
        "v6e": the_only(matrix_tile(book("v6e"))),
        "padded": list(shape),
        "utilization": useful,
    }


@solves("tpus.vpu_flops")
def vpu_flops(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v5p", given, alus="structure.alus_per_lane", clock="structure.clock")
    assert [chip.structure["sublanes"], chip.structure["lanes"]] == given["lanes"]
    return {"per_core": core_peak(chip, "vector")}


@solves("tpus.mxu_to_vpu_ratio")
def mxu_to_vpu(_: dict[str, Any]) -> dict[str, Any]:
    return {"ratio": core_peak(book("v5p")) / core_peak(book("v5p"), "vector")}


@solves("tpus.sublane_reduction_steps")
def sublane_reduction(given: dict[str, Any]) -> dict[str, Any]:
    shifts = reduction_shifts(given["sublanes"])
    lanes = list(range(given["sublanes"]))
    for shift in shifts:
        lanes = [value + lanes[(place + shift) % len(lanes)] for place, value in enumerate(lanes)]
    assert set(lanes) == {sum(range(given["sublanes"]))}, "every sublane holds the sum of all"
    return {"steps": len(shifts), "shuffles": list(shifts)}


@solves("tpus.vpu_alus")
def scalar_core(_: dict[str, Any]) -> dict[str, Any]:
    chip = book("v5p")
    parts = chip.structure
    return {"vpu_alus": vector_alus(chip), "mxus": parts["mxus_per_core"], "xlus": parts["xlus_per_core"]}


@solves("tpus.systolic_alus")
def systolic_alus(given: dict[str, Any]) -> dict[str, Any]:
    return {"cells": math.prod(matrix_tile(book("v5e"))), "flops_per_cycle": systolic_flops(given["mxu"], given["mxu"])}


@solves("tpus.min_tile_dims")
def min_tile(_: dict[str, Any]) -> dict[str, Any]:
    return {
        "v3": filling_side(book("v3")),
        "v4_v5": the_only(filling_side(book(name)) for name in ("v4", "v5e", "v5p")),
    }
