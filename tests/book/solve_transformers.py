"""Solutions of the chapter on Transformer arithmetic: counting parameters and FLOPs."""

from dataclasses import replace
from typing import Any

import sympy

from dragonscale.models.attention import Attention
from dragonscale.models.count import parameters
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.flops import Workload, forward_flops, training_flops
from dragonscale.models.layer import Layer
from dragonscale.models.program import Section
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.rooflines import einsum_cost, solve_equal, symbol
from dragonscale.physics.sharding.algebra import backward, derive
from dragonscale.physics.sharding.mesh import Mesh
from tests.book import solve_transformers_memory  # noqa: F401  (it registers its solvers)
from tests.book.casebook import NOT_COMPUTED, Both, solves
from tests.sharding.readings import executed_flops

LETTERS = {name: symbol(name) for name in "ABDEFGHIJKLMNPSTVWXYZk"}
B, D, F, G, H, K, L, N, S, T, V = (LETTERS[name] for name in "BDFGHKLNSTV")
NAMES = {"d": "D", "f": "F", "n": "N", "k": "K", "h": "H", "g": "H", "v": "V", "e": "E", "x": "k"}
NOT_COMPUTED["transformers.moe_sparsity_deepseek:typical_range"] = (
    "That sparsities of 8 to 64 are typical is an observation about published models, not a result."
)


def resized(section: Section, sizes: dict[str, Any], repeat: Any = 1) -> Section:
    """A section of a program with the sizes given; those not given stay letters."""
    known = LETTERS | sizes
    return replace(section, dims={name: known[NAMES[name]] for name in section.dims}, repeat=repeat)


def sections(sizes: dict[str, Any], ffn: Any = None, repeat: Any = 1) -> dict[str, Section]:
    """The embedding, block and head of a Transformer, by name."""
    layer = Layer(Attention(4, 2, 8), ffn or Mlp(16))
    return {
        section.name: resized(section, sizes, repeat if section.name == "block" else 1)
        for section in Transformer("book", 32, 64, (layer,)).program().sections
    }


def work(sizes: dict[str, Any]) -> Workload:
    """Training on B sequences of T tokens, every query against S keys: the book counts the full square."""
    return Workload(sizes["B"], sizes["T"], sizes.get("S", sizes["T"]), causal=False)


def formula_and_value(function: Any, given: dict[str, Any], symbols: dict[str, Any] = LETTERS) -> Both:
    """One reading of a program, with letters and with the sample's numbers."""
    return Both(function(symbols), function(given))


# Counting dots.


@solves("transformers.vector_matrix_flops")
def products(given: dict[str, Any]) -> dict[str, Any]:
    lines = {
        "dot": "int8[P] @ int8[P] -> int8[]",
        "matvec": "int8[N, P] @ int8[P] -> int8[N]",
        "matmul": "int8[N, P] @ int8[P, M] -> int8[N, M]",
    }
    answer = {}
    for name, text in lines.items():
        # One byte per element, so that the bytes of the operands are the book's "data".
        cost = einsum_cost(parse_einsum(text), LETTERS, counted=(0, 1))
        value = einsum_cost(parse_einsum(text), given).total_flops
        answer[name] = Both((cost.total_flops, cost.bytes["hbm"]), value)
    return answer


@solves("transformers.general_contraction")
def contraction(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum("C[G,H,I,J,K,L] @ D[G,H,M,N,K,L] -> E[G,H,I,J,M,N]")
    return {"flops": formula_and_value(line.flops, given)}


@solves("transformers.train_flops_matmul")
def matmul_in_training(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum("A[N, P] @ B[P, M] -> C[N, M]")

    def behind(sizes: dict[str, Any]) -> Any:
        return sum(gradient.flops(sizes) for gradient in backward(line))

    return {
        "forward": formula_and_value(line.flops, given),
        "backward": formula_and_value(behind, given),
        "total": formula_and_value(lambda sizes: line.flops(sizes) + behind(sizes), given),
    }


# The parts of a Transformer.


def count_of(part: str, section: str = "block") -> Any:
    return lambda sizes: parameters([sections(sizes)[section]])[part]


def training_of(*parts: str, section: str = "block") -> Any:
    def flops(sizes: dict[str, Any]) -> Any:
        by_part = training_flops([sections(sizes)[section]], work(sizes))
        return sum(by_part[part] for part in parts)

    return flops


@solves("transformers.attention_projections")
def projections(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "params": formula_and_value(count_of("attention"), given),
        "train_flops": formula_and_value(training_of("attention"), given),
    }


@solves("transformers.attention_mha_special")
def multi_head(given: dict[str, Any]) -> dict[str, Any]:
    symbols = LETTERS | {"K": N, "S": T}
    return {
        "params": formula_and_value(count_of("attention"), given, symbols),
        "train_flops": formula_and_value(training_of("attention", "scores"), given, symbols),
    }


@solves("transformers.dot_product_attention")
def dot_products(given: dict[str, Any]) -> dict[str, Any]:
    forward = forward_flops([sections(given)["block"]], work(given))["scores"]
    return {"train_flops": formula_and_value(training_of("scores"), given), "forward_flops": forward}


@solves("transformers.causal_factor")
def causal_mask(_: dict[str, Any]) -> dict[str, Any]:
    block = [sections(LETTERS)["block"]]
    causal, full = (forward_flops(block, Workload(B, T, T, causal=causal))["scores"] for causal in (True, False))
    return {"factor": sympy.simplify(causal / full)}


@solves("transformers.forward_fraction")
def forward_share(_: dict[str, Any]) -> dict[str, Any]:
    block = [sections(LETTERS)["block"]]
    forward, training = (sum(count(block, work(LETTERS)).values()) for count in (forward_flops, training_flops))
    products = [op.einsum for op in block[0].ops if op.function == "einsum"]
    sizes = block[0].dims | {"b": B, "t": T}
    behind = sum(gradient.flops(sizes) for line in products for gradient in backward(line))
    assert sympy.simplify(behind / sum(line.flops(sizes) for line in products)) == 2
    return {"fraction": sympy.simplify(forward / training)}


@solves("transformers.unembed")
def unembedding(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "params": formula_and_value(count_of("head", "head"), given),
        "train_flops": formula_and_value(training_of("head", section="head"), given),
    }


@solves("transformers.vocab_row")
def vocabulary(_: dict[str, Any]) -> dict[str, Any]:
    ends = [sections(LETTERS)[name] for name in ("embed", "head")]
    weights = parameters(ends)
    flops = sum(training_flops(ends, work(LETTERS)).values())
    return {"params": weights["embed"] + weights["head"], "train_flops": flops}


@solves("transformers.layernorm_params")
def norms(_: dict[str, Any]) -> dict[str, Any]:
    return {"params": count_of("norm")(LETTERS)}


@solves("transformers.rule_of_thumb")
def six_per_parameter(given: dict[str, Any]) -> dict[str, Any]:
    def matrices(sizes: dict[str, Any]) -> Any:
        weights = parameters([sections(sizes, repeat=sizes["L"])["block"]])
        return weights["attention"] + weights["mlp"]

    def flops(sizes: dict[str, Any]) -> Any:
        by_part = training_flops([sections(sizes, repeat=sizes["L"])["block"]], work(sizes))
        return by_part["attention"] + by_part["mlp"]

    assert sympy.simplify(flops(LETTERS) / (matrices(LETTERS) * B * T)) == 6
    return {
        "train_flops": formula_and_value(flops, given),
        "equals": flops(LETTERS),
        "params_matmul": matrices(given),
    }


# How much attention costs.


def attention_ratio(sizes: dict[str, Any]) -> Any:
    """Dot products over all other matmuls of a block with F = 4D, D = NH and K = N."""
    plain = sizes | {"B": 1, "F": 4 * sizes["D"], "N": sizes["D"], "K": sizes["D"], "H": 1}
    flops = training_flops([sections(plain)["block"]], work(plain))
    return flops["scores"] / (flops["attention"] + flops["mlp"])


@solves("transformers.attention_fraction")
def attention_share(given: dict[str, Any]) -> dict[str, Any]:
    return {"ratio": formula_and_value(attention_ratio, given, {"D": D, "T": T})}


@solves("transformers.attention_dominates_gemma27b")
def attention_dominates(given: dict[str, Any]) -> dict[str, Any]:
    (length,) = solve_equal(attention_ratio({"D": given["D"], "T": T}), 1, T)
    return {"T": length}


@solves("transformers.q5_equal_flops")
def equal_flops(given: dict[str, Any]) -> dict[str, Any]:
    sizes = {"B": 1, "T": T, "D": given["D"], "N": given["D"], "K": given["D"], "H": 1}
    flops = training_flops([sections(sizes)["block"]], work(sizes))
    (length,) = solve_equal(flops["scores"], flops["attention"], T)
    return {"T": length}


# Experts.


def experts(sizes: dict[str, Any], active: bool) -> Any:
    return parameters([sections(sizes, Moe(8, 2, 16))["block"]], active)["experts"]


@solves("transformers.moe_params")
def expert_parameters(given: dict[str, Any]) -> dict[str, Any]:
    total, active = (formula_and_value(lambda sizes, on=on: experts(sizes, on), given) for on in (False, True))
    dense = count_of("mlp")(LETTERS)
    return {
        "params": total,
        "activated": active,
        "vs_dense": f"total x {total.formula / dense}, activated x {active.formula / dense}",
    }


@solves("transformers.moe_sparsity_deepseek")
def sparsity(given: dict[str, Any]) -> dict[str, Any]:
    return {"sparsity": experts(given, active=False) / experts(given, active=True)}


@solves("transformers.q8_moe_crit_batch")
def critical_batch_of_experts(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum("bf16[B, k, D] @ W:int8[E:k, D, F] -> bf16[B, k, F]")
    assert round(load_chip("v5e").intensity("bf16")) == given["hw_intensity"]
    cost = einsum_cost(line, LETTERS, counted=(1,))
    (batch,) = solve_equal(cost.intensity(), given["hw_intensity"], B)
    return {"B_crit": batch}


@solves("transformers.q2_total_flops")
def repeated_work(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum("A[B_X, D_Y] @ W[D_Y, F] -> C[B_X, F]")

    def counts(sizes: dict[str, Any], axes: dict[str, Any]) -> tuple[Any, Any, Any]:
        mesh = Mesh(axes)
        way = next(way for way in derive(line, mesh) if not way.before)
        assert way.replicated == ("Z",)
        return (*executed_flops(line, way, sizes, mesh), way.flops(sizes, mesh))

    names = ("logical", "executed_total", "per_device")
    formulas = counts(LETTERS, {axis: LETTERS[axis] for axis in "XYZ"})
    values = counts({name: given[name] for name in "BDF"}, given["mesh"])
    return {name: Both(formulas[place], values[place]) for place, name in enumerate(names)}


@solves("transformers.head_constraints")
def shared_heads(_: dict[str, Any]) -> dict[str, Any]:
    heads = 12
    allowed = [shared for shared in range(1, heads + 1) if accepted(heads, shared)]
    assert allowed == [shared for shared in range(1, heads + 1) if heads % shared == 0]
    (equal,) = solve_equal(count_of("attention")(LETTERS), count_of("attention")(LETTERS | {"K": N}), K)
    block = sections(LETTERS)["block"]
    queries, keys = (
        block.size(op.output, b=B, t=T) for op in block.ops if op.output is not None and op.output.name in ("Q", "K")
    )
    return {"MHA": f"K={equal}", "MQA": f"K={min(allowed)}", "GQA": "K divides N", "G": queries / keys}


def accepted(heads: int, shared: int) -> bool:
    try:
        Attention(heads, shared, 64)
    except ValueError:
        return False
    return True
