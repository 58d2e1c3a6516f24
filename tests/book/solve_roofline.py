"""Solutions of the chapter on rooflines."""

from collections.abc import Callable
from typing import Any

import sympy

from dragonscale.course.closed_forms.chip_parts import dense_rate
from dragonscale.course.closed_forms.costs import tiled_matmul_cost
from dragonscale.physics.collectives import Options, Ring
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.rooflines import (
    Cost,
    Rates,
    Roofline,
    attainable,
    einsum_cost,
    rates_of,
    roofline,
    solve_equal,
    symbol,
)
from dragonscale.physics.sharding.algebra import Strategy, strategies
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh
from tests.book.casebook import Both, solves

BF16 = ("matrix", "bf16")
MATMUL = parse_einsum("bf16[B,D] @ bf16[D,F]")
INT8_MATMUL = parse_einsum("int8[B,D] @ int8[D,F] -> int8[B,F]")


def sizes_of(given: dict[str, Any], names: str) -> dict[str, Any]:
    return {name: given[name] for name in names.split()}


def on_symbols(names: str) -> dict[str, Any]:
    return {name: symbol(name) for name in names.split()}


def twice(function: Callable[..., dict[str, Any]], given: dict[str, Any], names: str) -> dict[str, Any]:
    """A function's answers on symbols and on the sample's numbers."""
    algebra, numbers = function(**on_symbols(names)), function(**sizes_of(given, names))
    return {key: Both(algebra[key], numbers[key]) for key in algebra}


def book_chip(name: str, given: dict[str, Any], reading: str = "book", **facts: str) -> Any:
    """A chip of the catalogue as the book reads it, once its facts are found to be those that the case gives."""
    chip = load_chip(name).reading(reading)
    for key, path in facts.items():
        assert chip.facts[path].value == given[key], f"{name} has another {path} than the book"
    return chip


def v5e(given: dict[str, Any], hbm: str = "hbm_bw", **facts: str) -> Any:
    return book_chip("v5e", given, **{hbm: "memory.hbm.bandwidth"}, **facts)


def bounds(t_math: Any, t_comms: Any) -> Roofline:
    """An operation that computes for so long and moves bytes for so long."""
    return roofline(Cost({BF16: t_math}, {"hbm": t_comms}), Rates({BF16: 1}, {"hbm": 1}))


@solves("roofline.t_math_v6e")
def t_math_v6e(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v6e", given, reading="book-roofline", peak="matrix.bf16")
    return {"t_math": roofline(Cost(flops={BF16: given["flops"]}), rates_of(chip)).lower}


@solves("roofline.time_bounds")
def time_bounds(given: dict[str, Any]) -> dict[str, Any]:
    math, comms = symbol("T_math"), symbol("T_comms")
    algebra, sample = bounds(math, comms), bounds(given["t_math"], given["t_comms"])
    # The ratio is largest where neither hides the other: on each side of that point it falls towards 1.
    [balance] = solve_equal(algebra.seconds["matrix"], algebra.seconds["hbm"], comms)
    ratio = algebra.upper / algebra.lower
    worst = ratio.subs(comms, balance)
    assert all(ratio.subs(comms, balance * skew) < worst for skew in (sympy.Rational(9, 10), sympy.Rational(11, 10)))
    return {
        "t_lower": Both(algebra.lower, sample.lower),
        "t_upper": Both(algebra.upper, sample.upper),
        "max_ratio_upper_to_lower": worst,
        "bound": sample.bound,
    }


@solves("roofline.bound_criterion")
def bound_criterion(_: dict[str, Any]) -> dict[str, Any]:
    flops, moved, peak, bandwidth = map(symbol, ("flops", "bytes", "peak_flops", "bandwidth"))
    cost = Cost({BF16: flops}, {"hbm": moved})
    result = roofline(cost, Rates({BF16: peak}, {"hbm": bandwidth}))
    [balance] = solve_equal(result.seconds["matrix"], result.seconds["hbm"], flops)
    more = {name: seconds.subs(flops, 2 * balance) for name, seconds in result.seconds.items()}
    assert Roofline(cost, more).lower == more["matrix"], "above the balance, compute binds"
    intensity = sympy.Function("intensity")(sympy.Symbol("op"))
    return {"compute_bound_iff": intensity > cost.intensity().subs(flops, balance)}


@solves("roofline.dot_product_intensity")
def dot_product(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum("bf16[N] @ bf16[N] -> bf16[]")

    def counts(**sizes: Any) -> dict[str, Any]:
        cost = einsum_cost(line, sizes, exact=True)
        return {"flops": cost.total_flops, "bytes": cost.bytes["hbm"], "intensity": cost.intensity()}

    answers = twice(counts, given, "N")
    return answers | {"limit": sympy.limit(answers["intensity"].formula, symbol("N"), sympy.oo)}


@solves("roofline.dot_product_regime")
def dot_product_regime(_: dict[str, Any]) -> dict[str, Any]:
    line, sizes = parse_einsum("bf16[N] @ bf16[N] -> bf16[]"), {"N": 1e9}
    on_matrix = roofline(einsum_cost(line, sizes), rates_of(load_chip("v5e").reading("book")))
    on_vector = roofline(einsum_cost(line, sizes, unit="vector"), rates_of(load_chip("v5p").reading("book")))
    assert on_matrix.bound == on_vector.bound
    return {"bound": on_matrix.bound}


@solves("roofline.v5p_vpu_critical_intensity")
def v5p_vector_intensity(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v5p", given, hbm_bw_chip="memory.hbm.bandwidth", cores="structure.cores")
    return {"intensity": chip.intensity("fp32", unit="vector")}


@solves("roofline.attainable_flops")
def attainable_flops(given: dict[str, Any]) -> dict[str, Any]:
    chip = v5e(given, hbm="bw", peak="matrix.bf16")
    rates = chip.peak("bf16"), chip.bandwidth("hbm")
    return {
        "attainable": attainable(symbol("intensity"), symbol("C"), symbol("W")),
        "attainable_a": attainable(given["intensity_a"], *rates),
        "attainable_b": attainable(given["intensity_b"], *rates),
    }


@solves("roofline.matmul_cost")
def matmul_cost(given: dict[str, Any]) -> dict[str, Any]:
    def counts(**sizes: Any) -> dict[str, Any]:
        return {
            "flops": einsum_cost(MATMUL, sizes).total_flops,
            "bytes_read": einsum_cost(MATMUL, sizes, counted=(0, 1)).bytes["hbm"],
            "bytes_written": einsum_cost(MATMUL, sizes, counted=(2,)).bytes["hbm"],
        }

    return twice(counts, given, "B D F")


def critical_batch(chip: Any) -> Any:
    """The batch at which the book's small-batch matmul (weights alone counted) turns compute-bound."""
    result = roofline(einsum_cost(MATMUL, on_symbols("B D F"), counted=(1,)), rates_of(chip))
    [batch] = solve_equal(result.seconds["matrix"], result.seconds["hbm"], symbol("B"))
    return batch


@solves("roofline.matmul_critical_batch_v5e")
def critical_batch_v5e(given: dict[str, Any]) -> dict[str, Any]:
    return {"B_crit": critical_batch(v5e(given, peak="matrix.bf16"))}


@solves("roofline.gpu_critical_batch_rule")
def critical_batch_h100(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("h100")
    assert chip.bandwidth("hbm") == given["h100_hbm_bw"]
    return {"B_crit": critical_batch(chip)}


@solves("roofline.matmul_regime_examples")
def regimes(given: dict[str, Any]) -> dict[str, Any]:
    rates = rates_of(v5e(given, peak="matrix.bf16"))
    sizes = sizes_of(given, "D F")
    return {f"bound_{batch}": roofline(einsum_cost(MATMUL, sizes | {"B": batch}), rates).bound for batch in given["B"]}


@solves("roofline.local_batch_tokens")
def local_batch(given: dict[str, Any]) -> dict[str, Any]:
    # One byte for each token, so that bytes count tokens; the sequences are split, and then each sequence too.
    tokens, sizes = parse_array("int8[B_X, T_Y]"), {"B": given["sequences"], "T": given["seq_len"]}
    mesh = Mesh({"X": given["sequences"], "Y": given["gpus"] // given["sequences"]})
    return {
        "global_tokens": local_bytes(tokens, sizes, Mesh({"X": 1, "Y": 1})),
        "local_tokens": local_bytes(tokens, sizes, mesh),
    }


@solves("roofline.tiled_matmul")
def tiled(given: dict[str, Any]) -> dict[str, Any]:
    def counts(bm: Any, bk: Any, bn: Any, tm: Any, tk: Any, tn: Any) -> dict[str, Any]:
        cost = tiled_matmul_cost(tm * bm, tk * bk, tn * bn, (bm, bk, bn))
        long = tiled_matmul_cost(tm * bm, symbol("long"), tn * bn, (bm, bk, bn)).intensity()
        return {
            "flops": cost.total_flops,
            "bytes": cost.bytes["hbm"],
            "intensity_approx": sympy.limit(sympy.simplify(long), symbol("long"), sympy.oo),
        }

    tiles = {f"t{name}": given[name] // given[f"b{name}"] for name in "mkn"}
    cost = tiled_matmul_cost(given["m"], given["k"], given["n"], (given["bm"], given["bk"], given["bn"]))
    answers = twice(counts, given | tiles, "bm bk bn tm tk tn")
    assert answers["bytes"].value == cost.bytes["hbm"]
    return answers | {"intensity_exact": cost.intensity()}


def two_chips(given: dict[str, Any]) -> tuple[Mesh, Strategy]:
    """The contracted dim split over two v5e chips joined by one link, and the way that adds up the halves."""
    chip = book_chip("v5e", given, peak="matrix.bf16", net_bw_each_way="ici.link")
    mesh = Mesh({"X": 2}, chip, rings={"X": (Ring(2, wrap=False),)})
    line = parse_einsum("X:bf16[B, D_X] @ Y:bf16[D_X, F] -> Z:bf16[B, F]")
    found = strategies(line, {"B": 1024, "D": 8192, "F": 8192}, mesh)
    return mesh, next(way for way in found if [step.kind for step in way.collectives] == ["all_reduce"])


def two_chip_times(given: dict[str, Any], **sizes: Any) -> dict[str, Any]:
    mesh, way = two_chips(given)
    [exchange] = way.step_seconds(sizes, mesh, Options())
    return {"t_math": way.math_seconds(sizes, mesh), "t_comms": exchange.bandwidth}


@solves("roofline.two_chip_matmul_times")
def two_chip_matmul(given: dict[str, Any]) -> dict[str, Any]:
    answers = twice(lambda **sizes: two_chip_times(given, **sizes), given, "B D F")
    return answers | {"bound": bounds(answers["t_math"].value, answers["t_comms"].value).bound}


@solves("roofline.two_chip_matmul_threshold")
def two_chip_threshold(given: dict[str, Any]) -> dict[str, Any]:
    mesh, way = two_chips(given)
    sizes = on_symbols("B D F")
    times = two_chip_times(given, **sizes)
    [needed] = solve_equal(times["t_math"], times["t_comms"], sizes["D"])
    cost = Cost({BF16: way.flops(sizes, mesh)}, wire={"X": way.wire_bytes(sizes, mesh)})
    return {"hw_intensity": cost.intensity("X").subs(sizes["D"], needed), "D_min": needed}


@solves("roofline.two_chip_threshold_variable")
def two_chip_variable(_: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("v5e").reading("book")
    given = {"peak": chip.peak("bf16"), "net_bw_each_way": chip.facts["ici.link"].value}
    line = two_chips(given)[1].local
    times = two_chip_times(given, **on_symbols("B D F"))
    decides = {str(size) for size in sympy.simplify(times["t_math"] / times["t_comms"]).free_symbols}
    assert decides <= set(line.contracted)
    batch = line.operands[0].names[0]
    assert batch not in decides
    return {"depends_on": f"{', '.join(sorted(decides))} (contracting), not {batch}"}


@solves("roofline.q1_int8_bytes")
def int8_bytes(_: dict[str, Any]) -> dict[str, Any]:
    sizes = on_symbols("B D F")
    return {
        "bytes_read": einsum_cost(INT8_MATMUL, sizes, counted=(0, 1)).bytes["hbm"],
        "bytes_written": einsum_cost(INT8_MATMUL, sizes, counted=(2,)).bytes["hbm"],
    }


@solves("roofline.q1_int8_bounds")
def int8_bounds(given: dict[str, Any]) -> dict[str, Any]:
    rates = rates_of(v5e(given, peak_int8="matrix.int8"))

    def times(**sizes: Any) -> dict[str, Any]:
        result = roofline(einsum_cost(INT8_MATMUL, sizes), rates)
        return {"t_math": result.seconds["matrix"], "t_comms": result.seconds["hbm"]}

    result = roofline(einsum_cost(INT8_MATMUL, sizes_of(given, "B D F")), rates)
    return twice(times, given, "B D F") | {"t_lower": result.lower, "t_upper": result.upper}


@solves("roofline.q5_h100_dense_flops")
def dense(given: dict[str, Any]) -> dict[str, Any]:
    rate = dense_rate(given["sparse_peak"])
    assert rate == load_chip("h100").peak("bf16")
    return {"dense_peak": rate}
