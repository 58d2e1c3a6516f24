"""Problems on attention: its dot products against the matmuls, its intensity, softmax in pieces."""

from dragonscale.course.closed_forms.costs import attention_cost
from dragonscale.course.closed_forms.decode_floor import attention_prefill_length
from dragonscale.course.closed_forms.softmax import Partial, combine
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.models.flops import Workload, forward_flops, training_flops
from dragonscale.models.letters import simple
from dragonscale.models.load import load_model
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import load_chip

D_MODELS = (4096, 2048, 3072, 4608, 5120, 6144, 8192, 12288)
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


def plain_model(d: int, ratio: int = 4) -> Transformer:
    """One layer with MHA as wide as the model and a gated MLP."""
    return simple(d_model=d, d_ff=ratio * d, n_layers=1, n_heads=d // 128, head_dim=128, vocab=8)


def layer_flops(d: int, length: int, ratio: int = 4, causal: bool = False) -> dict[str, float]:
    """Training FLOPs of the layer by part, for one sequence."""
    block = [one for one in plain_model(d, ratio).program().sections if one.name == "block"]
    return {part: float(value) for part, value in training_flops(block, Workload(1, length, length, causal)).items()}


@problem(
    "transformers",
    "Training FLOPs of attention's dot products",
    cases=("transformers.dot_product_attention:train_flops",),
    batch=(8, 1, 4, 32),
    length=(2048, 4096, 8192, 32768),
    heads=(32, 16, 64, 96, 128),
    groups=(4, 1, 8),
)
def training_flops_of_dot_products(batch: int, length: int, heads: int, groups: int) -> Posed:
    model = simple(
        d_model=heads * 128, d_ff=128, n_layers=1, n_heads=heads, n_kv_heads=heads // groups, head_dim=128, vocab=8
    )
    answer = float(training_flops(model.program().sections, Workload(batch, length, length, False))["scores"])
    return Posed(
        ask=f"How many FLOPs do QKᵀ and PV of one layer cost in training (forward and backward, the whole square without a "
        f"causal mask), for {batch} sequences of {count(length)} tokens, {heads} query heads and {heads // groups} KV heads of 128?",
        answer=answer,
        dimension="FLOP",
        hints=("Every query head meets every key, also where KV heads are shared.", "12·B·T²·N·H."),
        steps=(
            f"QKᵀ forward: 2 · {batch} · {length}² · {heads} · 128 = {amount(answer / 6, 'FLOP')}",
            "PV as many: twice that",
            f"backward twice forward: 3 · 2 · {amount(answer / 6, 'FLOP')} = {amount(answer, 'FLOP')}",
        ),
        traps=(
            Trap(
                answer / groups if groups > 1 else answer / 3,
                "GQA shares keys, not the dot products; and training is three times forward.",
            ),
            Trap(answer / 2, "That is the causal half, or QKᵀ alone; the whole square of both was asked."),
        ),
        check=f'dscale calc "12 FLOP * {batch} * {length}^2 * {heads} * 128"',
    )


@problem(
    "transformers",
    "Dot products against matmuls",
    cases=("transformers.attention_fraction:ratio",),
    length=(8192, *LENGTHS),
    d=(8192, *D_MODELS),
)
def ratio_of_dot_products(length: int, d: int) -> Posed:
    flops = layer_flops(d, length)
    rest = flops["attention"] + flops["mlp"]
    answer = flops["scores"] / rest
    return Posed(
        ask=f"FLOPs of attention's dot products over those of all matmuls with weights: what is the ratio in a layer with "
        f"D = {count(d)}, F = 4D, multi-head attention with NH = D, at {count(length)} tokens a sequence, the whole square counted?",
        answer=answer,
        hints=("12BT²NH over 18BTDF + 24BTDNH.", "With F = 4D and NH = D that is T/(8D)."),
        steps=(
            f"dot products: 12 · T² · D = {number(flops['scores'])} for each sequence",
            f"matmuls: 72 · T · D² + 24 · T · D² = {number(rest)}",
            f"T/(8D) = {length}/(8 · {d}) = {number(answer)}",
        ),
        traps=(
            Trap(answer / 2, "That is with a causal mask; the whole square was asked."),
            Trap(answer / (1 + answer), "That is the share of all FLOPs; the ratio to the other matmuls was asked."),
        ),
        check=f'dscale calc "{length} / (8*{d})"',
        tolerance=0.01,
    )


@problem(
    "transformers",
    "Where dot products overtake the matmuls",
    cases=("transformers.attention_dominates_gemma27b:T",),
    d=(4608, *D_MODELS),
    ratio=(4, 3, 2, 6),
    causal=(False, True),
)
def length_where_dot_products_dominate(d: int, ratio: int, causal: bool) -> Posed:
    flops = layer_flops(d, 1024, ratio, causal)
    answer = 1024 * (flops["attention"] + flops["mlp"]) / flops["scores"]
    factor = answer / d
    mask = "under a causal mask (half of the square)" if causal else "the whole square counted, no causal mask"
    other = answer / 2 if causal else answer * 2
    return Posed(
        ask=f"At how many tokens of a sequence do attention's dot products cost as many FLOPs as all matmuls with weights, for "
        f"D = {count(d)}, a gated MLP of F = {ratio}D and multi-head attention with NH = D, {mask}?",
        answer=answer,
        hints=(
            "Both grow with the tokens, dot products with their square.",
            f"{6 if causal else 12}T²D = (18·{ratio} + 24)·T·D².",
        ),
        steps=(
            f"matmuls: (18·{ratio} + 24)·T·D² = {18 * ratio + 24}·T·D²",
            f"dot products: {6 if causal else 12}·T²·D",
            f"T = {number(factor)}·D = {count(answer)}",
        ),
        traps=(
            Trap(other, "A causal mask halves the dot products, and so doubles the length."),
            Trap(
                2.0 * d if not causal else 4.0 * d,
                "That is where they equal attention's projections alone, without the MLP.",
            ),
        ),
        check=f'dscale calc "{6 if causal else 12}*T^2*{d} = (18*{ratio}+24)*T*{d}^2"',
    )


@problem(
    "transformers",
    "Dot products against projections",
    cases=("transformers.q5_equal_flops:T",),
    d=(4096, *D_MODELS[1:]),
    causal=(False, True),
)
def length_of_equal_flops(d: int, causal: bool) -> Posed:
    flops = layer_flops(d, 1024, causal=causal)
    answer = 1024 * flops["attention"] / flops["scores"]
    mask = "with a causal mask, half of the square" if causal else "the whole square counted"
    return Posed(
        ask=f"At how many tokens do attention's dot products cost as many FLOPs as its projections Q, K, V and O, with "
        f"multi-head attention, D = NH = {count(d)} ({mask})?",
        answer=answer,
        hints=("24BTDNH against 12BT²NH, or half of that under a mask.", "T = 2D, or 4D under a causal mask."),
        steps=(
            "projections: 24·B·T·D·NH",
            f"dot products: {6 if causal else 12}·B·T²·NH",
            f"T = {4 if causal else 2}D = {count(answer)}",
        ),
        traps=(
            Trap(4.0 * answer, "That is where they equal the MLP too."),
            Trap(answer / 2 if causal else answer * 2, "Was the mask counted?"),
        ),
        check=f'dscale calc "24*T*{d}^2 = {6 if causal else 12}*T^2*{d}"',
    )


@problem(
    "transformers",
    "Attention's share in a real model",
    model=("llama3-70b", "llama3-8b", "llama3-405b", "llama2-13b", "mixtral-8x7b", "deepseek-v3"),
    length=(131072, 8192, 32768, 65536, 262144, 1048576),
)
def attention_share_of_a_model(model: str, length: int) -> Posed:
    sections = load_model(model).program().sections
    flops = forward_flops(sections, Workload(1, length, length))
    whole = forward_flops(sections, Workload(1, length, length, False))
    total = float(sum(flops.values()))
    answer = float(flops["scores"]) / total
    full = float(whole["scores"]) / float(sum(whole.values()))
    rest = total - float(flops["scores"])
    scores, others = amount(float(flops["scores"]) / length, "FLOP"), amount(rest / length, "FLOP")
    return Posed(
        ask=f"Which share of all FLOPs are attention's dot products in {model} at {count(length)} tokens, causal mask counted? "
        f"Its other matmuls are {others} a token forward, its dot products {scores}. Answer as a fraction or in percent.",
        answer=answer,
        hints=("The share is of everything.", "scores / (scores + matmuls)."),
        steps=(
            f"all: {others} + {scores} = {amount(total / length, 'FLOP')} a token",
            f"share: {number(answer, 3)}",
        ),
        traps=(
            Trap(answer / (1 - answer), "That is dot products over the other matmuls, not the share of all."),
            Trap(full, "That counts the whole square; a causal mask leaves half of it."),
        ),
        check=f'dscale calc "{scores} / ({others} + {scores})"',
        tolerance=0.03,
    )


@problem(
    "transformers",
    "Intensity of attention",
    cases=("transformers.q4_attention_bytes_flops:intensity",),
    length=(1024, 512, 2048, 4096, 8192),
    groups=(4, 1, 2, 8, 16),
    kv=(8, 4, 2),
)
def intensity_of_attention(length: int, groups: int, kv: int) -> Posed:
    cost = attention_cost(1, length, length, kv, groups, 128)
    answer = float(cost.intensity())
    heads = kv * groups
    return Posed(
        ask=f"Fused attention reads Q, K, V once and writes its result, all bf16. How many FLOPs does it do for each byte, for one "
        f"sequence of {count(length)} tokens (as many queries as keys, no mask), {heads} query heads and {kv} KV heads of 128?",
        answer=answer,
        hints=(
            "4·T·S·N·H FLOPs; Q and the result are T·N·H numbers each, K and V are S·K·H each.",
            "T·S·G/(T·G + S) with G = N/K.",
        ),
        steps=(
            f"FLOPs: 4 · {length}² · {heads} · 128 = {count(cost.total_flops)}",
            f"bytes: 4 · {length} · 128 · ({heads} + {kv}) = {count(cost.bytes['hbm'])}",
            f"intensity: {number(answer)}",
        ),
        traps=(
            Trap(2 * answer, "bf16 numbers have two bytes; or is it the causal half?"),
            Trap(float(length), "That is the limit of large G; K and V have to be read too."),
        ),
        check=f'dscale roofline "attention(B=1, T={length}, N={heads}, K={kv}, H=128)" --on v5e | grep intensity',
    )


@problem(
    "transformers",
    "Intensity of attention in decoding",
    cases=("transformers.q4_decode_intensity:intensity",),
    length=(8192, 1024, 4096, 32768),
    groups=(8, 1, 2, 4, 16),
)
def intensity_of_decoding(length: int, groups: int) -> Posed:
    answer = float(attention_cost(1, 1, length, 1, groups, 128).intensity())
    return Posed(
        ask=f"In decoding each sequence has one query token. How many FLOPs does bf16 attention do for each byte it reads, with "
        f"{count(length)} keys and {groups} query heads for each KV head?",
        answer=answer,
        hints=("Put T = 1 into T·S·G/(T·G + S).", "S·G/(S + G): about G."),
        steps=(
            f"S·G = {count(length * groups)}, S + G = {count(length + groups)}",
            f"intensity: {number(answer)}",
        ),
        traps=(
            Trap(float(length) * groups / (groups + 1), "That is prefill, T = S."),
            Trap(2 * answer, "The keys and the values are both read, each two bytes."),
        ),
        check=f'dscale roofline "attention(B=1, T=1, S={length}, N={groups}, K=1, H=128)" --on v5e | grep intensity',
    )


@problem(
    "transformers",
    "Where prefill attention turns compute-bound",
    chip=("v5e", "v5p", "v6e", "h100", "a100", "b200", "v4"),
    groups=(1, 2, 4, 8, 16),
)
def prefill_attention_threshold(chip: str, groups: int) -> Posed:
    loaded = load_chip(chip)
    intensity = loaded.intensity("bf16")
    from dragonscale.physics.rooflines import rates_of

    answer = float(attention_prefill_length(rates_of(loaded), groups))
    return Posed(
        ask=f"A {chip} does {number(intensity)} bf16 FLOPs while it reads one byte of HBM. From how many tokens on is prefill attention "
        f"(as many queries as keys, no mask) bound by compute there, with G = {groups} query heads for each KV head?",
        answer=answer,
        hints=("With T = S the intensity is S·G/(G+1).", "S = C/W · (G+1)/G."),
        steps=(
            f"S · {groups}/{groups + 1} = {number(intensity)}",
            f"S = {number(intensity)} · {groups + 1}/{groups} = {count(answer)}",
        ),
        traps=(
            Trap(intensity * groups, "GQA makes attention more intense, not less."),
            Trap(intensity / 2 * (groups + 1) / groups, "Keys and values are both read."),
        ),
        check=f'dscale calc "S*{groups}/{groups + 1} = {chip}.bf16 / {chip}.hbm_bandwidth * 1 byte/FLOP"',
        tolerance=0.01,
    )


@problem(
    "transformers",
    "Softmax in two pieces",
    cases=("transformers.flash_combine:L",),
    first=(3.0, 1.0, 4.0, 2.0, 6.0),
    second=(5.0, 2.5, 3.5, 4.5),
    sums=((2.5, 1.25), (1.5, 3.0), (4.0, 2.0), (1.2, 1.1)),
)
def softmax_in_two_pieces(first: float, second: float, sums: tuple[float, float]) -> Posed:
    whole = combine(Partial(first, sums[0]), Partial(second, sums[1]))
    answer = float(whole.total)
    low, high = min(first, second), max(first, second)
    return Posed(
        ask=f"Attention over two pieces of the keys found a largest score of {first} and a sum of exponentials (of scores less their "
        f"piece's largest) of {sums[0]} in the first, {second} and {sums[1]} in the second. What is the sum for all keys?",
        answer=answer,
        hints=(
            "Both sums must refer to the same largest score.",
            "L = exp(M₁−M)·L₁ + exp(M₂−M)·L₂ with M = max(M₁, M₂).",
        ),
        steps=(
            f"M = {high}",
            f"the piece with {low} is scaled by exp({low} − {high})",
            f"L = {number(answer)}",
        ),
        traps=(
            Trap(sum(sums), "The two sums refer to different largest scores; scale one first."),
            Trap(answer * 2.718281828459045 ** (high - low), "Scale to the larger maximum, not the smaller."),
        ),
        check=f'dscale calc "exp({first}-{high})*{sums[0]} + exp({second}-{high})*{sums[1]}"',
    )
