"""Solutions of the chapter on GPUs: published runs, the last quiz and the recipes."""

import math
from typing import Any

import sympy

from dragonscale.course.closed_forms.planned_passes import PassTimes, pass_times
from dragonscale.physics.collectives import BOOK, Options, collective_time
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.hardware.slices import chips_to_hold
from dragonscale.physics.notation import parse_array
from dragonscale.physics.rooflines import symbol
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh, make_mesh
from tests.book.casebook import load, plain, solves
from tests.book.solve_gpus_rules import (
    DP,
    DP_TP_PP,
    FSDP_TP_PP,
    F,
    K,
    Z,
    book,
    critical_batch,
    least_expert_width,
    most_tensor_ways,
    planned,
    solve_for,
    tensor_over_nodes,
)

ADAM = dtype_bytes("bf16") + 2 * dtype_bytes("fp32")
"""Bytes per parameter: bf16 weights and Adam's two moments in fp32."""
GRADIENT = parse_array("dW:bf16[L_P, D, F_Y]")
SIZES = {"L": 64, "D": 8192, "F": 28672}
QUIZ_5_BATCH = 4e6
QUIZ_5_GPUS = parse_slice("h100:4096")


def gradient_bandwidth(mesh: Mesh, options: Options = BOOK) -> float:
    """Bytes of the whole model's gradients that data parallelism reduces (or gathers) per second."""
    part = local_bytes(GRADIENT, SIZES, mesh)
    whole = part * mesh.size("P", "Y")
    return whole / collective_time("reduce_scatter", part, mesh.group(("X",)), options).bandwidth


def sequences_times_length(given: dict[str, Any]) -> int:
    return given["batch_seqs"] * given["seq"]


@solves("gpus.dp_deepseek_actual_batch")
def deepseek_batch(_: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": sequences_times_length(plain(load("gpus")["gpus.ex_deepseek"]["given"]))}


@solves("gpus.ex_deepseek")
def deepseek(given: dict[str, Any]) -> dict[str, Any]:
    axes = {"X": given["DP"], "P": given["PP"], "Y": given["EP"]}
    piece = parse_slice("h800:2048")
    mesh = make_mesh(axes, piece.chip, piece)
    tokens = sequences_times_length(given)
    gain = gradient_bandwidth(mesh, Options(exact=True)) / gradient_bandwidth(mesh)
    return {
        "gpus": mesh.chips,
        "tokens": tokens,
        "tokens_per_gpu": tokens / mesh.chips,
        "model_parallel": mesh.size("P", "Y"),
        "ep_nodes": mesh.size("Y") / piece.chip.network.levels[0].degree,
        "dp_bw_factor": gain,
    }


@solves("gpus.ex_llama3")
def llama3(given: dict[str, Any]) -> dict[str, Any]:
    chip = book("h100")
    mesh = Mesh({"X": given["DP"], "P": given["PP"], "Y": given["TP"]}, chip)
    without = Mesh({"X": given["DP"], "P": 1, "Y": given["TP"]}, chip)
    return {
        "gpus": mesh.chips,
        "tokens_per_gpu": given["tokens"] / mesh.chips,
        "dp_cost_reduction": gradient_bandwidth(mesh) / gradient_bandwidth(without),
    }


@solves("gpus.q5_1_b200")
def b200_rules(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("b200")
    node, leaf, *_ = chip.network.levels
    assert (chip.peak("bf16"), node.bandwidth, leaf.bandwidth) == tuple(given.values())
    width = symbol("F")
    ways = most_tensor_ways(width, chip.peak("bf16"), node.bandwidth)
    return {
        "flops_gain": chip.peak("bf16") / book("h100").peak("bf16"),
        "tp_alpha": width / ways,
        "dp_cross": critical_batch(DP, {"X": 1024}, chip),
    }


@solves("gpus.q5_2a_memory")
def llama70b_state(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("h100")
    assert (chip.hbm.capacity, ADAM) == (given["hbm"], given["bytes_per_param"])
    state, node = given["params"] * ADAM, chip.network.levels[0].degree
    return {
        "bytes": state,
        "gpus": chips_to_hold(chip, state),
        "nodes": chips_to_hold(chip, state, whole=node) / node,
    }


@solves("gpus.q5_2c_dp_memory")
def llama70b_under_dp(given: dict[str, Any]) -> dict[str, Any]:
    mesh = make_mesh({"X": QUIZ_5_GPUS.chips // given["tp"], "Y": given["tp"]}, QUIZ_5_GPUS.chip, QUIZ_5_GPUS)
    state = local_bytes(parse_array("State:int8[S_Y]"), {"S": given["bytes"]}, mesh)
    return {"dp": mesh.size("X"), "bytes_per_gpu": state, "fits": state <= QUIZ_5_GPUS.chip.hbm.capacity}


@solves("gpus.q5_2c_pp")
def llama70b_with_pipeline(given: dict[str, Any]) -> dict[str, Any]:
    stages, node = given["nodes_spanned"], 8
    axes = {"X": QUIZ_5_GPUS.chips // (stages * node), "P": stages, "Y": node}
    batch = critical_batch(DP_TP_PP, axes, book("h100"))
    return {
        "bw": gradient_bandwidth(Mesh(axes, book("h100"))),
        "B_crit": batch,
        "compute_bound": QUIZ_5_BATCH / QUIZ_5_GPUS.chips > batch,
    }


MEGATRON = {"16B": (192, 192), "70B": (768, 384), "314B": (3072, 1536)}
"""GPUs and sequences per batch of three of Megatron-LM's runs, with sequences of 4,096 tokens (a figure in the book).
"""


@solves("gpus.q5_3_bounds")
def megatron(given: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    chip = book("h100")
    for name, (tensor, stages) in given["TPxPP"].items():
        gpus, sequences = MEGATRON[name]
        axes = {"X": gpus // (tensor * stages), "P": stages, "Y": tensor}
        batch = critical_batch(DP_TP_PP, axes, chip)
        answer[name] = "compute" if sequences * 4096 / gpus > batch else "comms"
        if tensor * stages > 8:
            answer[f"{name}_crit"] = batch
            alone = Mesh({"X": gpus, "P": 1, "Y": 1}, chip)
            answer[f"{name}_bw_gain"] = gradient_bandwidth(Mesh(axes, chip)) / gradient_bandwidth(alone)
    return answer


@solves("gpus.recipe_dense_small")
def recipes(_: dict[str, Any]) -> dict[str, Any]:
    """Each part of the advice from the rule behind it, on H100s with batches as they are used."""
    chip = book("h100")
    node, leaf, *_ = chip.network.levels
    peak = chip.peak("bf16")

    # A small dense model: 4M tokens on 1,024 GPUs are enough for FSDP alone; on four times as many, with some TP and
    # PP.
    alone, helped = {"X": 1024}, {"X": 128, "P": 4, "Y": 8}
    small = critical_batch(DP, alone, chip) < 4e6 / 1024
    more = critical_batch(DP, {"X": 4096}, chip) > 4e6 / 4096 and critical_batch(DP_TP_PP, helped, chip) < 4e6 / 4096
    assert small

    # A large one: 16M tokens on 16k GPUs are too few for data parallelism alone. Tensor parallelism ends after a node
    # or
    # two; many stages do the rest; and with many microbatches the weights cannot be gathered for each.
    over_nodes = tensor_over_nodes(peak, leaf.bandwidth)
    first = most_tensor_ways(28672, peak, leaf.bandwidth)
    second = solve_for(symbol("Y"), PassTimes(over_nodes.math.subs(F, 28672), over_nodes.comms))
    tensor = [math.floor(ways / node.degree) for ways in (first, second)]
    wide = {"X": 128, "P": 16, "Y": 8}
    per_gpu = 16e6 / 16384
    assert critical_batch(DP, {"X": 16384}, chip) > per_gpu > critical_batch(DP_TP_PP, wide, chip)
    piece = {"B": 16e6 / 16, "D": 16384, "F": 53248, "L": 126}
    gathering = pass_times(planned(FSDP_TP_PP)[0], piece, Mesh(wide, chip), over=("X",)).bound == "comms"
    data = "pure DP" if gathering else "FSDP"

    # A mixture of experts of width 2,048, 8 per token: too narrow to cut, so whole experts are spread instead.
    cut = most_tensor_ways(2048, peak, leaf.bandwidth)
    rates = (symbol("C"), symbol("W_node"))
    threshold = sympy.limit(least_expert_width(*rates, K / (Z / node.degree)), Z, sympy.oo)
    reach = solve_for(Z, PassTimes(least_expert_width(peak, leaf.bandwidth, 1).subs(K, 8), 2048))
    spread = f"multi-node EP if F > {str(threshold).replace('*', '')} else about {round(reach / node.degree)} nodes"
    return {
        "small_dense": "aggressive FSDP" + (" (+ some PP/TP)" if more else ""),
        "large_dense": f"{tensor[0]}-{tensor[1]} node TP + many-node PP + {data}",
        "moe": f"{'EP preferred to TP' if cut < 2 else 'TP preferred to EP'}; {spread}",
    }
