"""Solutions of the chapter on training: FSDP and tensor parallelism mixed, and what is left across pods."""

import math
from typing import Any

from dragonscale.course.closed_forms.crossovers import (
    best_split,
    least_tokens,
    power_splits,
    rank_splits,
)
from dragonscale.course.closed_forms.rooflines import LayerTimes, layer_times, letters, ring_mesh
from dragonscale.course.closed_forms.schemes import read_scheme
from dragonscale.physics.hardware import Chip, load_chip, parse_slice
from dragonscale.physics.rooflines import symbol
from dragonscale.physics.sharding.mesh import make_mesh
from tests.book.casebook import solves
from tests.book.formulas import exponent, numbers_of, span_of, spanned_axes
from tests.book.solve_training_rules import FSDP, TP, limit, pod_limit, some, v5p

MIXED = read_scheme("fsdp+tp")
MIXTURES = {overlap: best_split(MIXED, *letters(MIXED), "X", "Y", overlap) for overlap in ("max", "sum")}
SPANS = {"X": 2, "Y": 1}
"""Two axes of a 3D torus for FSDP, one for tensor parallelism."""
D_MODEL = 8192
"""Any width will do: it cancels in every comparison of this chapter."""


def numbers(chip: Chip, spans: dict[str, int] = SPANS, **sizes: Any) -> dict[Any, Any]:
    """What the letters of a mixture stand for."""
    return numbers_of(chip, sizes, spans=spans)


def threshold(chip: Chip, width: int, overlap: str = "max") -> float:
    """The fewest tokens per chip with which a mixture is bound by compute."""
    return float(MIXTURES[overlap].tokens_per_chip.subs(numbers(chip, F=width)))


def best_ways(chip: Chip, tokens: float, chips: int, width: int) -> float:
    """The best FSDP degree, not rounded; it is the same whether communication over the two axes overlaps or not."""
    first, second = (
        float(mixture.degrees.subs(numbers(chip, B=tokens, N=chips, F=width))) for mixture in MIXTURES.values()
    )
    assert math.isclose(first, second)
    return first


def split_times(chip: Chip, tokens: float, width: int, ways: tuple[int, int]) -> LayerTimes:
    """A layer's forward pass with X ways of FSDP over two axes and Y of tensor parallelism over one."""
    mesh = ring_mesh(dict(zip("XY", ways, strict=True)), chip, SPANS)
    return layer_times(MIXED, {"B": tokens, "D": D_MODEL, "F": width}, mesh)


@solves("training.mixed_comm_times")
def mixed_layer(given: dict[str, Any]) -> dict[str, Any]:
    mesh = ring_mesh(some(given, "X", "Y"), v5p(given), {"X": given["M_X"], "Y": given["M_Y"]})
    times = layer_times(MIXED, some(given, "B", "D", "F"), mesh)
    return {"T_fsdp": times.comms["X",], "T_tp": times.comms["Y",], "T_math": times.math, "bound": times.bound()}


@solves("training.mixed_xopt_4x4x4")
def small_cube(given: dict[str, Any]) -> dict[str, Any]:
    chip, cube = load_chip("v5p"), parse_slice("v5p:4x4x4")
    assert cube.chips == given["N"]
    spans = {"X": given["M_X"], "Y": given["M_Y"]}
    meshes = [ring_mesh(ways, chip, spans) for ways in power_splits(given["N"])]
    best = rank_splits(MIXED, {"B": given["B"], "D": D_MODEL, "F": given["F"]}, meshes)[0]
    laid = make_mesh(best.degrees, chip, cube)
    assert {axis: span_of(laid, axis) for axis in "XY"} == spans
    return {
        "X_opt": best_ways(chip, given["B"], given["N"], given["F"]),
        "X_opt_B_printed": best_ways(chip, given["B_as_printed"], given["N"], given["F"]),
        "X_choice": best.degrees["X"],
        "Y_choice": best.degrees["Y"],
    }


@solves("training.mixed_ratio")
def ratio_at_best(given: dict[str, Any]) -> dict[str, Any]:
    return {"ratio": best_ratio(v5p(given), given["B"], given["N"], given["F"])}


def best_ratio(chip: Chip, tokens: float, chips: int, width: int) -> float:
    """Compute over communication at the best split, not rounded."""
    return float(MIXTURES["max"].ratio.subs(numbers(chip, B=tokens, N=chips, F=width)))


@solves("training.scaling_exponents")
def exponents(_: dict[str, Any]) -> dict[str, Any]:
    ratios = {name: layer_times(scheme, *letters(scheme)).ratio() for name, scheme in (("tp", TP), ("fsdp", FSDP))}
    ratios["mixed"] = MIXTURES["max"].ratio
    return {name: exponent(ratio, symbol("B")) for name, ratio in ratios.items()}


# Figures.


def alone(chip: Chip, name: str, chips: int, width: int, tokens: float = 2**20) -> LayerTimes:
    """All chips for one parallelism, over all three axes of the torus."""
    scheme, axis = {"fsdp": (FSDP, "X"), "tp": (TP, "Y")}[name]
    mesh = ring_mesh({axis: chips}, chip, {axis: chip.network.axes})
    return layer_times(scheme, {"B": tokens, "D": D_MODEL, "F": width}, mesh)


@solves("training.fig_4x4x4_curves")
def curves(given: dict[str, Any]) -> dict[str, Any]:
    chip, chips, width = v5p(given), given["N"], given["F"]
    assert (chip.network.axes, SPANS) == (given["M_tot"], {"X": given["M_X"], "Y": given["M_Y"]})
    return {
        "tp_only_ratio": alone(chip, "tp", chips, width).ratio(),
        "fsdp_only_threshold": limit(FSDP, chip, {"X": chip.network.axes}),
        "mixed_threshold": threshold(chip, width),
        "fsdp_ratio_at_2000": alone(chip, "fsdp", chips, width, 2000 * chips).ratio(),
        "mixed_ratio_at_2000": best_ratio(chip, 2000 * chips, chips, width),
    }


@solves("training.fig_4x4x4_regimes")
def regimes(given: dict[str, Any]) -> dict[str, Any]:
    chip, chips, width = v5p(given), given["N"], given["F"]
    batches = [tokens * chips for tokens in given["B_per_chip"]]
    answer: dict[str, Any] = {
        name: [alone(chip, name, chips, width, batch).bound() == "compute" for batch in batches]
        for name in ("fsdp", "tp")
    }
    return answer | {"mixed": [best_ratio(chip, batch, chips, width) > 1 for batch in batches]}


@solves("training.fig_16x16x16_crossovers")
def split_crossovers(given: dict[str, Any]) -> dict[str, Any]:
    chip, sizes = v5p(given), {"D": D_MODEL, "F": given["F"]}
    splits = {"dp4096": (4096, 1, 3), "dp1024_tp4": (1024, 4, 2), "dp512_tp8": (512, 8, 2)}
    answer: dict[str, Any] = {
        name: least_tokens(MIXED, sizes, ring_mesh({"X": x, "Y": y}, chip, {"X": spans}))
        for name, (x, y, spans) in splits.items()
    }
    tensor = alone(chip, "tp", given["N"], given["F"])
    assert least_tokens(TP, sizes, ring_mesh({"Y": given["N"]}, chip, {"Y": 3})) is None
    return answer | {"tp4096": f"never (ratio {tensor.ratio():.4f})"}


@solves("training.interactive_split_crossovers")
def all_split_crossovers(given: dict[str, Any]) -> dict[str, Any]:
    chip, sizes = v5p(given), {"D": D_MODEL, "F": given["F"]}
    meshes = []
    for x in given["X"]:
        ways = {"X": x, "Y": given["N"] // x}
        meshes.append(ring_mesh(ways, chip, {axis: spanned_axes(size, 16) for axis, size in ways.items()}))
    return {"crossover": [least_tokens(MIXED, sizes, mesh) for mesh in meshes]}


# Communication that does not overlap (the first edition).


@solves("training.legacy_sum_min_batch")
def one_after_the_other(given: dict[str, Any]) -> dict[str, Any]:
    chip = v5p(given)
    tokens = threshold(chip, given["F"], "sum")
    assert math.isclose(tokens, 4 * threshold(chip, given["F"]))
    return {"B_per_chip": tokens}


@solves("training.legacy_sum_llama70b", "training.legacy_q3_3", "applied-training.legacy_mixed_threshold")
def thresholds_of_the_first_edition(given: dict[str, Any]) -> dict[str, Any]:
    tokens = threshold(v5p(given), given["F"], "sum")
    if "B" in given:
        return {"B_per_chip": tokens, "chips": given["B"] / tokens}
    return {"threshold": tokens, "compute_bound": given["B_per_chip"] > tokens}


@solves("training.legacy_q4_batches")
def two_batches(given: dict[str, Any]) -> dict[str, Any]:
    chip, chips, width = v5p(given), given["N"], given["F"]
    return {
        "B_per_chip": [batch / chips for batch in given["B"]],
        "fsdp_ok": [alone(chip, "fsdp", chips, width, batch).bound() == "compute" for batch in given["B"]],
        "mixed_ok": [best_ratio(chip, batch, chips, width) > 1 for batch in given["B"]],
        "X_opt": [best_ways(chip, batch, chips, width) for batch in given["B"]],
    }


# LLaMA-3 70B over several pods.


@solves("training.llama70b_2M_limits")
def limits_of_llama70b(given: dict[str, Any]) -> dict[str, Any]:
    chip, width, pod = v5p(given), given["F"], given["pod_chips"]
    fsdp, mixed = limit(FSDP, chip, {"X": 3}), threshold(chip, width)
    return {
        "tp_per_axis": limit(TP, chip, {"Y": 1}, F=width),
        "fsdp_chips": given["B"] / fsdp,
        "fsdp_pod_fraction": given["B"] / fsdp / pod,
        "mixed_threshold": mixed,
        "mixed_chips": given["B"] / mixed,
        "fits_one_pod": given["B"] / mixed <= pod,
    }


def terms(chip: Chip, times: LayerTimes) -> dict[str, float]:
    """Times in the unit in which the book compares them: what one token's activations take over one axis."""
    unit = layer_times(TP, {"B": 1, "D": D_MODEL, "F": 1}, ring_mesh({"Y": 2}, chip)).network()
    return {
        "fsdp_term": times.comms["X",] / unit,
        "tp_term": times.comms["Y",] / unit,
        "math_term": times.math / unit,
    }


@solves("training.llama70b_1M_recipe_discrete", "training.q3_3_discrete_check")
def whole_split(given: dict[str, Any]) -> dict[str, Any]:
    chip = v5p(given)
    assert {"X": given["M_X"], "Y": given["M_Y"]} == SPANS
    times = split_times(chip, given["B"], given["F"], (given["X"], given["Y"]))
    answer = terms(chip, times) | {"compute_bound": times.bound() == "compute"}
    if given["X"] * given["Y"] == 8192:
        other = split_times(chip, given["B"], given["F"], (512, 16))
        answer["alt_512x16_compute_bound"] = other.bound() == "compute"
    return answer


@solves("training.llama70b_2pods_check")
def two_pods(given: dict[str, Any]) -> dict[str, Any]:
    chip = v5p(given)
    assert pod_limit(chip) == given["dcn"]
    per_pod = given["B"] / given["pods"]
    per_chip = per_pod / math.prod(chip.network.pod)
    return {
        "B_per_pod": per_pod,
        "B_per_chip": per_chip,
        "dcn_ok": per_pod > pod_limit(chip),
        "ici_ok": per_chip > threshold(chip, given["F"]),
    }
