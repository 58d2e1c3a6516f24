"""Solutions of the chapter on GPUs: the rules of each parallelism, derived from its shardings."""

import math
from typing import Any

import sympy

from dragonscale.course.closed_forms.chip_parts import abstract_chip
from dragonscale.course.closed_forms.pipelined import pipeline_hops, pipeline_time
from dragonscale.course.closed_forms.planned_passes import PassTimes, pass_times
from dragonscale.physics.collectives import BOOK, Options, collective_time
from dragonscale.physics.collectives.cost import ragged_fill
from dragonscale.physics.hardware import Chip, load_chip
from dragonscale.physics.notation import parse_array, parse_chain
from dragonscale.physics.rooflines import array_bytes, solve_equal, symbol
from dragonscale.physics.sharding.chain import PlannedEinsum, passes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard import reshard
from tests.book.casebook import Both, load, plain, solves
from tests.book.solve_gpus_network import counting, flat

EXACT = Options(exact=True)
NAMES = ("B", "D", "F", "X", "Y", "Z", "C", "W", "N", "M", "E", "T", "k", "alpha")
LETTERS = {name: symbol(name) for name in NAMES}
B, D, F, X, Y, Z, C, W, N, M, E, T, K, ALPHA = LETTERS.values()

DP = "In[B_X, D] · W_in[D, F] · W_out[F, D] -> Out[B_X, D]"
DP_ON_A_TORUS = "In[B_XYZ, D] · W_in[D, F] · W_out[F, D] -> Out[B_XYZ, D]"
FSDP = "In[B_X, D] · W_in[D_X, F] · W_out[F, D_X] -> Out[B_X, D]"
TP = "In[B, D_Y] · W_in[D, F_Y] · W_out[F_Y, D] -> Out[B, D_Y]"
DP_TP_PP = "In[L_P, B_X, D_Y] · W_in[L_P, D, F_Y] · W_out[L_P, F_Y, D] -> Out[L_P, B_X, D_Y]"
FSDP_TP_PP = "In[L_P, B_X, D_Y] · W_in[L_P, D_X, F_Y] · W_out[L_P, F_Y, D_X] -> Out[L_P, B_X, D_Y]"
EXPERTS = "In[E_Z, T, D] · W_in[E_Z, D, F] · W_out[E_Z, F, D] -> Out[E_Z, T, D]"


def planned(scheme: str, tokens: int = 2**16) -> tuple[list[PlannedEinsum], list[PlannedEinsum]]:
    """A scheme's forward and backward lines with their collectives, planned on an example of usual sizes."""
    lines = parse_chain(scheme)
    axes = {axis: 8 for line in lines for axis in line.axes}
    sizes = {"B": tokens, "D": 8192, "F": 32768, "L": 64, "E": 64, "T": 8192}
    return passes(lines, sizes, Mesh(axes))


def solve_for(variable: Any, times: PassTimes) -> Any:
    """Where compute and communication take equally long."""
    (value,) = solve_equal(times.math, times.comms, variable)
    return value


def critical_batch(scheme: str, axes: dict[str, int], chip: Chip, options: Options = BOOK) -> float:
    """Tokens per chip above which the gradients of data parallelism (axis X) hide behind the backward pass."""
    mesh, sizes = Mesh(axes, chip), {"B": B, "D": 8192, "F": 32768, "L": 64}
    over = tuple(axes) if scheme == DP_ON_A_TORUS else ("X",)
    times = pass_times(planned(scheme)[1], sizes, mesh, options, over=over)
    return float(solve_for(B, times) / mesh.chips)


def book(name: str) -> Chip:
    return load_chip(name).reading("book")


# Data parallelism.


@solves("gpus.dp_rule")
def dp_rule(given: dict[str, Any]) -> dict[str, Any]:
    formulas = [pass_times(planned(scheme)[1], LETTERS, Mesh({"X": X}, abstract_chip(C, W))) for scheme in (DP, FSDP)]
    assert formulas[0] == formulas[1]  # sharding the weights too costs nothing more in the backward pass
    mesh = Mesh({"X": given["X"]}, abstract_chip(given["C"], given["W"]))
    values = pass_times(planned(DP)[1], {name: given[name] for name in "BDF"}, mesh)
    return {
        "t_math": Both(formulas[0].math, values.math),
        "t_comms": Both(formulas[0].comms, values.comms),
        "rule": sympy.Gt(B / X, solve_for(B, formulas[0]) / X),
        "bound": values.bound,
    }


@solves("gpus.dp_intra_node", "gpus.dp_cross_node")
def dp_on_h100(given: dict[str, Any]) -> dict[str, Any]:
    chip = book("h100")
    node, leaf, *_ = chip.network.levels
    gpus = {node.bandwidth: node.degree, leaf.bandwidth: node.degree * leaf.degree}[given["W"]]
    assert chip.peak("bf16") == given["C"]
    return {"B_per_gpu": critical_batch(DP, {"X": gpus}, chip)}


@solves("gpus.dp_tpu_comparison")
def dp_on_v5p(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("v5p")
    assert (chip.peak("bf16"), 2 * chip.network.link, chip.network.axes) == tuple(given.values())
    return {"B_per_chip": critical_batch(DP_ON_A_TORUS, {"X": 16, "Y": 16, "Z": 16}, chip)}


@solves("gpus.dp_llama3")
def dp_of_llama3(given: dict[str, Any]) -> dict[str, Any]:
    batch = critical_batch(DP, {"X": given["gpus"]}, book("h100"))
    assert math.isclose(batch, given["B_per_gpu"])
    used = plain(load("gpus")["gpus.ex_llama3"]["given"])["tokens"]  # as the chapter's examples give it
    return {"tokens": batch * given["gpus"], "actual": used}


@solves("gpus.dp_deepseek")
def dp_of_deepseek(given: dict[str, Any]) -> dict[str, Any]:
    chip = book("h800")
    assert (chip.peak("bf16"), chip.network.levels[0].bandwidth) == (given["C"], given["W"])
    batch = critical_batch(DP, {"X": given["gpus"]}, chip)
    return {"B_per_gpu": batch, "tokens": batch * given["gpus"]}


@solves("gpus.dp_sharp")
def dp_with_sharp(_: dict[str, Any]) -> dict[str, Any]:
    sharp = Options(in_network=True)
    sizes = {"intra": 8, "cross": 1024}
    return {name: critical_batch(DP, {"X": size}, book("h100"), sharp) for name, size in sizes.items()}


@solves("gpus.dp_two_nodes")
def dp_over_two_nodes(given: dict[str, Any]) -> dict[str, Any]:
    nodes = Mesh({"X": X}, abstract_chip(ALPHA * W * N / X, W, "a node with N/X GPUs"))
    rule = counting(solve_for(B, pass_times(planned(DP)[1], LETTERS, nodes, EXACT)), "X")
    # Inside each node another parallelism is at work, so that only the network carries gradients.
    axes = {"X": given["X_nodes"], "P": 1, "Y": 8}
    return {"rule": sympy.Gt(B / N, rule / N), "B_per_gpu": critical_batch(DP_TP_PP, axes, book("h100"), EXACT)}


@solves("gpus.dp_takeaway")
def dp_on_b200_across_nodes(_: dict[str, Any]) -> dict[str, Any]:
    assert critical_batch(DP, {"X": 8}, load_chip("b200")) == 2500
    return {"B_per_gpu": critical_batch(DP, {"X": 1024}, load_chip("b200"))}


# Tensor parallelism.


def most_tensor_ways(d_ff: Any, peak: Any, bandwidth: Any) -> Any:
    """The ways of tensor parallelism at which a forward pass stops being compute-bound."""
    mesh, sizes = Mesh({"Y": Y}, abstract_chip(peak, bandwidth)), LETTERS | {"F": d_ff}
    return solve_for(Y, pass_times(planned(TP, tokens=1024)[0], sizes, mesh))


def tensor_over_nodes(chip_peak: Any, bandwidth: Any, node: int = 8) -> PassTimes:
    """Tensor parallelism of Y = M nodes: a node is the chip here, and only what leaves it counts."""
    mesh = Mesh({"Y": M}, abstract_chip(node * chip_peak, bandwidth, "a node"))
    times = pass_times(planned(TP, tokens=1024)[0], LETTERS, mesh, EXACT)
    return PassTimes(times.math.subs(M, Y / node), counting(times.comms, "M").subs(M, Y / node))


@solves("gpus.tp_rule")
def tp_rule(given: dict[str, Any]) -> dict[str, Any]:
    times = pass_times(planned(TP, tokens=1024)[0], LETTERS, Mesh({"Y": Y}, abstract_chip(C, W)))
    return {
        "t_math": times.math,
        "t_comms": times.comms,
        "rule": sympy.Lt(Y, solve_for(Y, times)),
        "Y_max_intra": most_tensor_ways(given["F"], given["C"], given["W_gpu"]),
        "Y_max_cross": most_tensor_ways(given["F"], given["C"], given["W_node"]),
    }


@solves("gpus.tp_llama3", "gpus.q5_2c_max_tp")
def tp_of_llama3(given: dict[str, Any]) -> dict[str, Any]:
    chip = book("h100")
    node, leaf, *_ = chip.network.levels
    if "W" in given:
        ways = most_tensor_ways(given["F"], chip.peak("bf16"), given["W"])
        return {"Y_max": ways, "practical": ways // node.degree * node.degree}
    ways = most_tensor_ways(given["F"], chip.peak("bf16"), leaf.bandwidth)
    over_nodes = tensor_over_nodes(chip.peak("bf16"), leaf.bandwidth)
    return {
        "Y_cross": ways,
        "Y_practical": ways // node.degree * node.degree,
        "Y_two_node": solve_for(Y, PassTimes(over_nodes.math.subs(F, given["F"]), over_nodes.comms)),
    }


@solves("gpus.tp_two_node_rule")
def tp_over_two_nodes(_: dict[str, Any]) -> dict[str, Any]:
    chip = book("h100")
    times = tensor_over_nodes(int(chip.peak("bf16")), int(chip.network.levels[1].bandwidth))
    return {"rule": sympy.Gt(F, sympy.factor(solve_for(F, times)))}


# Expert parallelism.


def expert_times(peak: Any, bandwidth: Any, fill: Any, node: int = 8) -> PassTimes:
    """Two matmuls of Z-way expert parallelism, and the AllToAlls to and from the experts' nodes.

    Each token is copied to every node that holds one of its k experts: an array with a dim of nodes, of which `fill` is
    not empty, moves from tokens split over the nodes to nodes split over them.
    """
    wires = Mesh({"Z": M}, abstract_chip(peak, bandwidth, "a node"))
    tokens, copies = parse_array("A[M, B_Z, D]"), parse_array("A[M_Z, B, D]")
    moves = [*reshard(tokens, copies, wires), *reshard(copies, tokens, wires)]
    options = Options(exact=True, filled=fill)
    comms = sum(
        collective_time(move.kind, move.volume(LETTERS, wires), wires.group(move.axes), options).bandwidth
        for move in moves
    )
    routed = LETTERS | {"T": B * K / E}
    busy = pass_times(planned(EXPERTS)[0], routed, Mesh({"Z": Z}, abstract_chip(peak, bandwidth))).math
    return PassTimes(busy, counting(sympy.sympify(comms), "M").subs(M, Z / node))


def least_expert_width(peak: Any, bandwidth: Any, fill: Any) -> Any:
    return sympy.simplify(solve_for(F, expert_times(peak, bandwidth, fill)))


def spelt(expression: Any) -> str:
    """As the book writes it: a product without a sign."""
    return str(expression).replace("*", " ").replace(" - ", "-")


@solves("gpus.ep_conditions")
def ep_conditions(_: dict[str, Any]) -> dict[str, Any]:
    nodes = Z / 8
    fill = ragged_fill(K, nodes, random=False)
    partial = next(part for part in fill.args if part.has(K))
    (all_nodes,) = solve_equal(partial, 1, K)
    few = least_expert_width(ALPHA * W, W, 1)
    many = sympy.limit(least_expert_width(ALPHA * W, W, partial), Z, sympy.oo)
    return {
        "small_Z": f"k > {spelt(all_nodes)} and F > {spelt(sympy.factor(few))}",
        "large_Z": f"Z >> k and F > {spelt(many)}",
    }


@solves("gpus.ep_threshold_h100")
def ep_threshold(given: dict[str, Any]) -> dict[str, Any]:
    width = least_expert_width(given["C"], given["W_node"], K / (Z / 8))
    return {"F_min": sympy.limit(width, Z, sympy.oo)}


# Pipelines.


@solves("gpus.pp_comms")
def pp_comms(given: dict[str, Any]) -> dict[str, Any]:
    activations = parse_array("bf16[B, D]")
    pieces, stages = symbol("N_MB"), symbol("N_stages")
    hop, total = pipeline_time(array_bytes(activations, LETTERS), pieces, stages, flat(2))
    sizes = {name: given[name] for name in ("B", "D")}
    one, all_hops = pipeline_time(
        array_bytes(activations, sizes), given["N_MB"], given["N_stages"], flat(2, given["W"])
    )
    return {
        "t_hop": Both(hop.bandwidth, one.bandwidth),
        "hops": Both(pipeline_hops(pieces, stages), pipeline_hops(given["N_MB"], given["N_stages"])),
        "t_total": Both(total.bandwidth, all_hops.bandwidth),
        "t_per_layer": all_hops.bandwidth / given["N_layers"],
    }


@solves("gpus.pp_zero3")
def zero_and_pipelines(_: dict[str, Any]) -> dict[str, Any]:
    """LLaMA-3 405B on 16k H100s: one microbatch's forward pass against the weights it would have to gather."""
    mesh = Mesh({"X": 128, "P": 16, "Y": 8}, book("h100"))
    sizes = {"B": 16e6 / 16, "D": 16384, "F": 53248, "L": 126}  # a sixteenth of the batch: as many pieces as stages
    verdicts: dict[str, str] = {}
    for name, scheme in {"zero3": FSDP_TP_PP, "zero1": DP_TP_PP}.items():
        lines = planned(scheme)[0]
        gathered = any(step.before.name.startswith("W") for line in lines for step in line.best.collectives)
        bound = pass_times(lines, sizes, mesh, over=("X",)).bound
        assert gathered == (bound == "comms")
        verdicts[name] = "impractical (weights gathered per microbatch)" if gathered else "ok"
    return verdicts
