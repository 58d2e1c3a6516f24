"""Solutions of the chapter on Transformer arithmetic: activations, caches, flash attention, utilisation."""

from typing import Any

import numpy
import sympy

from dragonscale.course.closed_forms.chip_parts import utilisation
from dragonscale.course.closed_forms.costs import attention_cost
from dragonscale.course.closed_forms.softmax import Partial, combine
from dragonscale.models.activations import activation_bytes, saved_tensors
from dragonscale.models.attention import Attention
from dragonscale.models.count import parameters
from dragonscale.models.ffn import Mlp
from dragonscale.models.flops import Workload, forward_flops, training_flops
from dragonscale.models.layer import Layer
from dragonscale.models.program import Section
from dragonscale.models.transformer import Transformer, kv_bytes_per_token, layer_section
from dragonscale.physics.collectives import Ring, Rings, collective_time
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import Einsum, parse_array, parse_einsum
from dragonscale.physics.rooflines import array_bytes, solve_equal, symbol
from dragonscale.physics.rooflines.model_flops import model_flops
from dragonscale.physics.sharding.algebra import backward
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard import reshard
from tests.book.casebook import Both, solves
from tests.sharding.wording import BOOK_NAMES

B, G, H, K, S, T = (symbol(name) for name in "BGHKST")


def square_block(d_model: int, d_ff: int, layers: int = 1) -> Section:
    """Multi-head attention as wide as the model, and a gated MLP."""
    return layer_section(Layer(Attention(d_model // 128, d_model // 128, 128), Mlp(d_ff)), d_model, "block", layers)


# Activations.


@solves("transformers.activation_memory_full")
def everything_kept(given: dict[str, Any]) -> dict[str, Any]:
    sizes = {"n": given["tensors_per_layer"], "t": given["tokens"], "d": given["D"], "l": given["L"]}
    return {"bytes": array_bytes(parse_array("A:bf16[l, n, t, d]"), sizes)}


@solves("transformers.activation_memory_big_matmuls")
def matmuls_kept(given: dict[str, Any]) -> dict[str, Any]:
    # The book takes every saved tensor to be as wide as the model, so F = D here.
    block = square_block(given["D"], given["D"], given["L"])
    held = activation_bytes([block], Workload(1, given["tokens"], given["tokens"]), "matmuls")
    return {"tensors_per_layer": len(saved_tensors(block, "matmuls")), "bytes": held["block"]}


@solves("transformers.block_remat_flops")
def recomputed_blocks(_: dict[str, Any]) -> dict[str, Any]:
    block = [square_block(4096, 16384)]
    work = Workload(1, 4096, 4096)
    assert len(saved_tensors(block[0], "block")) == 1
    forward, training = (sum(count(block, work).values()) for count in (forward_flops, training_flops))
    params, tokens = symbol("params"), symbol("tokens")
    return {
        "from": model_flops(params, tokens),
        "to": model_flops(params, tokens, recomputed=1),
        "factor": (training + forward) / training,
    }


# Question 1.


@solves("transformers.q1_attention_fraction")
def attention_parameters(given: dict[str, Any]) -> dict[str, Any]:
    weights = parameters([square_block(given["D"], given["F"])])
    return {"fraction": weights["attention"] / (weights["attention"] + weights["mlp"])}


@solves("transformers.q1_kv_per_token")
def cache_per_token(given: dict[str, Any]) -> dict[str, Any]:
    layer = Layer(Attention(given["NH"] // 128, given["NH"] // 128, 128), Mlp(16384))
    model = Transformer("question 1", 4096, 32000, (layer,) * given["L"])
    return {"bytes": kv_bytes_per_token(model, "int8")}


# Communication of a mixture of experts.


@solves("transformers.moe_comms")
def expert_collectives(_: dict[str, Any]) -> dict[str, Any]:
    mesh = Mesh({"X": 16})
    tokens, routed = parse_array("A[B_X, E, D]"), parse_array("A[B, E_X, D]")
    steps = [*reshard(tokens, routed, mesh), *reshard(routed, tokens, mesh)]
    ring = Rings((Ring(16),), load_chip("v5e").network.link)
    times = {kind: collective_time(kind, 1e9, ring).bandwidth for kind in ("all_gather", steps[0].kind)}
    return {
        "collectives": [BOOK_NAMES[step.kind] for step in steps],
        "each_vs_allgather": times[steps[0].kind] / times["all_gather"],
    }


# Question 4: the intensity of attention.


@solves("transformers.q4_attention_bytes_flops")
def attention_intensity(given: dict[str, Any]) -> dict[str, Any]:
    formula = attention_cost(B, T, S, K, G, H)
    value = attention_cost(*(given[name] for name in "BTSKGH"))
    heads = {G: symbol("N") / K}
    return {
        "bytes": Both(formula.bytes["hbm"], value.bytes["hbm"]),
        "flops": Both(formula.total_flops.subs(heads), value.total_flops),
        "intensity": Both(formula.intensity(), value.intensity()),
    }


@solves("transformers.q4_decode_intensity")
def decode_intensity(given: dict[str, Any]) -> dict[str, Any]:
    formula = attention_cost(B, 1, S, K, G, H).intensity()
    value = attention_cost(1, 1, given["S"], 1, given["G"], 128).intensity()
    return {"intensity": Both(formula, value), "limit": sympy.limit(sympy.simplify(formula), S, sympy.oo)}


@solves("transformers.q4_prefill_threshold")
def prefill_threshold(given: dict[str, Any]) -> dict[str, Any]:
    lengths = []
    for groups in given["G"]:
        intensity = attention_cost(1, S, S, 1, groups, 128).intensity()
        lengths += solve_equal(intensity, given["hw_intensity"], S)
    return {"S": lengths}


# Question 7: DeepSeek v3.


@solves("transformers.q7_model_flops")
def training_run(given: dict[str, Any]) -> dict[str, Any]:
    return {"flops": model_flops(given["active_params"], given["tokens"])}


@solves("transformers.q7_mfu")
def utilisation_of_a_run(given: dict[str, Any]) -> dict[str, Any]:
    return {"mfu": utilisation(given["model_flops"], given["available"])}


# Appendix A: flash attention.


@solves("transformers.flash_combine")
def softmax_in_parts(given: dict[str, Any]) -> dict[str, Any]:
    m1, m2, l1, l2, m = (symbol(name) for name in ("M1", "M2", "L1", "L2", "M"))
    formula = combine(Partial(m1, l1), Partial(m2, l2))
    value = combine(Partial(given["M1"], given["L1"]), Partial(given["M2"], given["L2"]))
    return {
        "M": Both(formula.largest, value.largest),
        "L": Both(formula.total.subs(sympy.Max(m1, m2), m), value.total),
    }


@solves("transformers.flash_vjp_identity")
def softmax_backward(_: dict[str, Any]) -> dict[str, Any]:
    forward = parse_einsum("S[i, j] @ V[j, d] -> O[i, d]")
    gradient = backward(forward)[0]
    random = numpy.random.default_rng(0)
    known: dict[str, Any] = {
        name: random.normal(size=size) for name, size in (("S", (3, 5)), ("V", (5, 4)), ("dO", (3, 4)))
    }
    known |= {line.output.name: evaluate(line, known) for line in (forward, gradient)}
    long, short = parse_einsum("S[i, j] @ dS[i, j] -> R[i]"), parse_einsum("dO[i, d] @ O[i, d] -> R[i]")
    assert numpy.allclose(evaluate(long, known), evaluate(short, known))
    return {"identity": f"{written(long)} = {written(short)}"}


def evaluate(line: Einsum, arrays: dict[str, Any]) -> Any:
    """An einsum line on NumPy arrays."""
    terms = ["".join(array.names) for array in (*line.operands, line.output)]
    return numpy.einsum(f"{','.join(terms[:-1])}->{terms[-1]}", *(arrays[array.name] for array in line.operands))


def written(line: Einsum) -> str:
    """An einsum line as a sum: `sum_j S_ij dS_ij`."""
    factors = " ".join(f"{array.name}_{''.join(array.names)}" for array in line.operands)
    return f"sum_{''.join(line.contracted)} {factors}"
