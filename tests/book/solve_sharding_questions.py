"""Solutions of the chapter on sharded matrices: its worked questions."""

from typing import Any

from dragonscale.course.closed_forms.spread import spread_gather
from dragonscale.physics.collectives import collective_time
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.slices import parse_slice
from dragonscale.physics.notation import Einsum, parse_array, parse_chain, parse_einsum
from dragonscale.physics.numbers import maximum
from dragonscale.physics.rooflines import array_bytes, solve_equal, symbol
from dragonscale.physics.rooflines.crossover import exact
from dragonscale.physics.sharding.algebra import Strategy, book_case, derive, strategies
from dragonscale.physics.sharding.chain import passes
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh, natural_mesh
from dragonscale.physics.sharding.reshard import Step, reshard
from tests.book.casebook import Both, solves
from tests.book.solve_sharding_collectives import with_rates
from tests.sharding.wording import BOOK_NAMES, words

LETTERS = {name: symbol(name) for name in "BDFIJKXYCW"}


# Question 2: bf16[B_X, D_Y] on a v4p cube of 4x4x4.

CUBE = natural_mesh(parse_slice("v4p:4x4x4"))


def seconds(steps: tuple[Step, ...], sizes: dict[str, Any]) -> tuple[Any, Any]:
    """Time and latency of the collectives among some steps on the cube."""
    times = [
        collective_time(step.kind, step.volume(sizes, CUBE), CUBE.group(step.axes)) for step in steps if not step.free
    ]
    return sum(time.lower for time in times), sum(time.latency for time in times)


@solves("sharding.q2_allgather_xy")
def gather_xy(given: dict[str, Any]) -> dict[str, Any]:
    steps = reshard(parse_array("A:bf16[B_X, D_Y]"), parse_array("A:bf16[B, D]"), CUBE)
    time, latency = seconds(steps, {"B": given["B"], "D": given["D"]})
    return {"t": time, "latency_floor": latency}


@solves("sharding.q2_allreduce_z")
def reduce_z(given: dict[str, Any]) -> dict[str, Any]:
    steps = reshard(parse_array("A:bf16[B_X, D_Y]{U_Z}"), parse_array("A:bf16[B_X, D_Y]"), CUBE)
    symbolic = Mesh({"X": LETTERS["X"], "Y": LETTERS["Y"], "Z": symbol("Z")})
    volume = steps[0].volume(LETTERS, symbolic)
    return {"bytes": volume, "t": seconds(steps, {"B": given["B"], "D": given["D"]})[0]}


@solves("sharding.q2_free_reshard_1", "sharding.q2_free_reshard_2")
def gather_over_idle_axes(given: dict[str, Any]) -> dict[str, Any]:
    target = parse_array("A:bf16[B, D]" if "Y" in given["gather_axes"] else "A:bf16[B, D_Y]")
    steps = spread_gather(parse_array("A:bf16[B_X, D_Y]"), target, CUBE)
    assert sorted(axis for step in steps if not step.free for axis in step.axes) == given["gather_axes"]
    return {"t": seconds(steps, {"B": 1024, "D": 4096})[0]}


# Question 4: gather the weights (s1), or add up partial sums (s2)?

Q4 = parse_einsum("In:bf16[B, D] @ W:bf16[D_X, F] -> Out:bf16[B, F]")


def both_ways(mesh: Mesh) -> dict[str, Strategy]:
    ways = derive(Q4, mesh)
    return {
        "s1": next(way for way in ways if [step.kind for step in way.collectives] == ["all_gather"]),
        "s2": next(way for way in ways if [step.kind for step in way.collectives] == ["all_reduce"]),
    }


def parts(mesh: Mesh, sizes: dict[str, Any]) -> dict[str, Any]:
    """Compute and communication time of each way."""
    ways = both_ways(mesh)
    return {
        f"{name}_{part}": seconds
        for name, way in ways.items()
        for part, seconds in (("math", way.math_seconds(sizes, mesh)), ("comms", way.comms_seconds(sizes, mesh)))
    }


def symbolic_parts() -> dict[str, Any]:
    return parts(Mesh({"X": LETTERS["X"]}, with_rates("v5p", LETTERS["C"], LETTERS["W"])), LETTERS)


def on_v5p(threshold: Any) -> Any:
    """A threshold in C and W with a v5p's numbers put in."""
    chip = load_chip("v5p")
    return threshold.subs({LETTERS["C"]: exact(chip.peak("bf16")), LETTERS["W"]: exact(2 * chip.network.link)})


@solves("sharding.q4_costs")
def costs_of_both_ways(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip(given["chip"])
    assert (chip.peak("bf16"), 2 * chip.network.link) == (given["C"], given["W_bidi"])
    mesh, sizes = Mesh({"X": given["X"]}, chip), {name: given[name] for name in "BDF"}
    values, formulas = (
        {name: maximum(time[f"{name}_math"], time[f"{name}_comms"]) for name in ("s1", "s2")}
        for time in (parts(mesh, sizes), symbolic_parts())
    )
    answer: dict[str, Any] = {name: Both(formulas[name], values[name]) for name in values}
    return answer | {"better": min(values, key=lambda name: values[name])}


@solves("sharding.q4_critical")
def thresholds(_: dict[str, Any]) -> dict[str, Any]:
    time = symbolic_parts()
    b, d, x = (LETTERS[name] for name in "BDX")
    (batch,) = solve_equal(time["s1_math"], time["s1_comms"], b)
    (ways,) = solve_equal(time["s2_math"], time["s2_comms"], x)
    (width,) = solve_equal(time["s1_math"], time["s2_comms"], d)
    return {
        "alpha": on_v5p(LETTERS["C"] / LETTERS["W"]),
        "s1_comms_bound_below_B": on_v5p(batch),
        "s2_compute_bound_needs_X_below": on_v5p(ways),
        "D_threshold_large_B": on_v5p(width),
    }


@solves("sharding.q4_max_X")
def most_ways(given: dict[str, Any]) -> dict[str, Any]:
    time = symbolic_parts()
    (ways,) = solve_equal(time["s2_math"], time["s2_comms"], LETTERS["X"])
    return {"X_max": on_v5p(ways).subs(LETTERS["D"], given["D"])}


@solves("sharding.q4_decision")
def which_way(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip(given["chip"])
    time = symbolic_parts()
    d = LETTERS["D"]

    def wins_above(s1: Any, s2: Any) -> Any:
        """The relation in D under which the second way is faster."""
        (threshold,) = solve_equal(s1, s2, d)
        assert ((s1 - s2).subs(d, 2 * threshold)).is_positive
        return d > on_v5p(threshold)

    mesh = Mesh({"X": 8}, chip)
    better = []
    for case in given["cases"]:
        sizes = case | {"F": 32768}
        times = {name: way.lower_seconds(sizes, mesh) for name, way in both_ways(mesh).items()}
        better.append(min(times, key=lambda name: times[name]))
    return {
        "if_B_lt_2550": wins_above(time["s1_comms"], time["s2_comms"]),
        "if_B_gt_2550": wins_above(time["s1_math"], time["s2_comms"]),
        "better": better,
    }


# Question 5: the cheapest way to a replicated product on a v4p cube.


def candidate(line: Einsum, way: Strategy) -> str:
    split = ".".join(str(array).replace(", ", ",") for array in line.operands if array.axes)
    return f"{split} + {BOOK_NAMES[way.collectives[0].kind]}" if way.collectives else "replicated"


@solves("sharding.q5_min_latency")
def cheapest_layout(given: dict[str, Any]) -> dict[str, Any]:
    sizes = {name: given[name] for name in "IJK"}
    assert (CUBE.chip.peak("bf16"), 2 * CUBE.chip.network.link) == (given["C"], given["W_bidi"])
    whole = parse_einsum("A[I, J] @ B[J, K] -> C[I, K]")
    found: dict[str, tuple[str, Strategy]] = {}
    for number, index in enumerate(("I", "K", "J", ""), 1):
        layout = {index: ("X", "Y", "Z")}
        line = Einsum(tuple(array.with_layout(layout) for array in whole.operands), whole.output)
        way = strategies(line, sizes, CUBE)[0]
        found[str(number)] = (candidate(line, way), way)
    times = {number: way.lower_seconds(sizes, CUBE) for number, (_, way) in found.items()}
    fastest = [number for number, time in times.items() if time == min(times.values())]
    return {
        "candidates": {number: text for number, (text, _) in found.items()},
        "best": f"{' and '.join(fastest)} tie",
        "t_comms_1_2": found["2"][1].comms_seconds(sizes, CUBE),
        "t_comms_3": found["3"][1].comms_seconds(sizes, CUBE),
        "t_compute_1_3": found["3"][1].math_seconds(sizes, CUBE),
        "t_compute_4": found["4"][1].math_seconds(sizes, CUBE),
    }


# Question 6: common shardings on a v5e 4x4.

Q6 = {
    "sharding.q6a": "A[I_X, J_Y] @ B[J_Y, K] -> C[I_X, K]",
    "sharding.q6b": "A[I_X, J] @ B[J_X, K_Y] -> C[I_X, K_Y]",
}


def on_four_by_four(text: str, given: dict[str, Any]) -> dict[str, Any]:
    line, sizes = parse_einsum(text), {name: given[name] for name in "IJK"}
    piece = parse_slice(f"{given['chip']}:{'x'.join(map(str, given['topology']))}")
    real, ideal = natural_mesh(piece), Mesh({"X": 4, "Y": 4}, piece.chip)
    way = strategies(line, sizes, ideal)[0]
    symbolic = Mesh({"X": LETTERS["X"], "Y": LETTERS["Y"]}, with_rates("v5e", LETTERS["C"], LETTERS["W"]))
    answer = {
        "comms": ", ".join(words(step, full=True) for step in way.collectives),
        "bytes": sum(step.volume(LETTERS, symbolic) for step in way.collectives),
        "t_compute": Both(way.math_seconds(LETTERS, symbolic), way.math_seconds(sizes, ideal)),
        "t_ideal": way.comms_seconds(sizes, ideal),
        "t_no_wrap": way.comms_seconds(sizes, real),
    }
    if book_case(line) != 3:
        return answer
    bound = "comms" if way.comms_seconds(sizes, ideal) > way.math_seconds(sizes, ideal) else "compute"
    return answer | {"case": 3, "bound": bound}


for case_id, text in Q6.items():
    solves(case_id)(lambda given, text=text: on_four_by_four(text, given))


# Question 7: an MLP at batch 128 on a v5e 2x2.

TENSOR = "In[B, D] · W_in[D, F_XY] · W_out[F_XY, D] -> Out[B, D]"
FSDP = ("In[B_XY, D] @ W_in[D_XY, F] -> H[B_XY, F]", "H[B_XY, F] @ W_out[F, D_XY] -> Out[B_XY, D]")
Q7 = {"B": 128, "D": 8192, "F": 32768}


@solves("sharding.q7_memory")
def memory_of_an_mlp(given: dict[str, Any]) -> dict[str, Any]:
    weight, activations = (array_bytes(parse_array(text), given) for text in ("W:bf16[D, F]", "In:bf16[B, D]"))
    return {"weight_bytes": weight, "act_bytes": activations, "fits_unsharded_in_300MB": 2 * weight <= 300e6}


@solves("sharding.q7_times")
def times_of_an_mlp(given: dict[str, Any]) -> dict[str, Any]:
    piece = parse_slice(f"{given['chip']}:{'x'.join(map(str, given['topology']))}")
    real, ideal = natural_mesh(piece), Mesh({"X": 2, "Y": 2}, piece.chip)
    assert (piece.chip.peak(), piece.chip.hbm.bandwidth) == (given["C"], given["hbm_bw"])
    tensor, _ = passes(parse_chain(TENSOR), Q7, ideal)
    fsdp = [next(iter(passes([parse_einsum(text)], Q7, ideal)[0])) for text in FSDP]
    weights = sum(local_bytes(line.line.operands[1], Q7, ideal) for line in tensor)
    gather = [
        next(way for way in line.ways if [step.before.name for step in way.collectives] == [line.line.operands[1].name])
        for line in fsdp
    ]
    return {
        "tp_weight_bytes_per_chip": weights,
        "tp_t_compute": sum(line.best.math_seconds(Q7, ideal) for line in tensor),
        "tp_t_hbm_weights": weights / piece.chip.hbm.bandwidth,
        "tp_t_comms_ideal": sum(line.best.comms_seconds(Q7, ideal) for line in tensor),
        "tp_t_comms_no_wrap": sum(line.best.comms_seconds(Q7, real) for line in tensor),
        "fsdp_t_comms_ideal": sum(way.comms_seconds(Q7, ideal) for way in gather),
    }
