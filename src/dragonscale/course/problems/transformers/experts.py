"""Problems on mixtures of experts: parameters held and used, sparsity, the batch they need."""

from dragonscale.course.closed_forms.decode_floor import critical_batch
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import count, number
from dragonscale.models.letters import simple
from dragonscale.models.load import load_model
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines import rates_of

EXPERTS = (256, 8, 16, 64, 128)
CHOSEN = (8, 1, 2, 4)


def expert_counts(d: int, width: int, experts: int, chosen: int) -> tuple[float, float]:
    """Parameters of one layer's experts, and those that a token uses."""
    model = simple(
        d_model=d, d_ff=width, n_layers=1, n_heads=d // 128, head_dim=128, vocab=8, n_experts=experts,
        experts_per_token=chosen,
    )  # fmt: skip
    counts = count_parameters(model)
    held = counts.by_part["experts"]
    return float(held), float(held - (counts.total - counts.active - 8 * d))


@problem(
    "transformers",
    "Parameters of a layer's experts",
    cases=("transformers.moe_params:params",),
    d=(7168, 4096, 2048, 6144),
    width=(2048, 14336, 1408, 768),
    experts=EXPERTS,
    chosen=CHOSEN,
)
def parameters_of_experts(d: int, width: int, experts: int, chosen: int) -> Posed | None:
    if chosen >= experts:
        return None
    held, used = expert_counts(d, width, experts, chosen)
    return Posed(
        ask=f"How many parameters have the experts of one MoE layer: {experts} gated MLPs with D = {count(d)} and F = {count(width)}, "
        f"of which a token uses {chosen}?",
        answer=held,
        hints=("All of them are held, however few a token uses.", "3·E·D·F."),
        steps=(
            f"one expert: 3 · {d} · {width} = {count(3 * d * width)}",
            f"{experts} of them: {number(held, 5)}",
        ),
        traps=(
            Trap(used, "That is what a token uses; all experts are held."),
            Trap(held * 2 / 3, "A gated MLP has three matrices."),
        ),
        check=f'dscale calc "3*{experts}*{d}*{width}"',
    )


@problem(
    "transformers",
    "Expert parameters that a token uses",
    cases=("transformers.moe_params:activated",),
    d=(7168, 4096, 2048, 6144),
    width=(2048, 14336, 1408, 768),
    experts=EXPERTS,
    chosen=CHOSEN,
)
def expert_parameters_used(d: int, width: int, experts: int, chosen: int) -> Posed | None:
    if chosen >= experts:
        return None
    held, used = expert_counts(d, width, experts, chosen)
    return Posed(
        ask=f"Of one MoE layer with {experts} experts (gated MLPs, D = {count(d)}, F = {count(width)}) a token uses {chosen}. How many "
        f"expert parameters does it use in that layer?",
        answer=used,
        hints=("Only the chosen experts count.", "3·k·D·F."),
        steps=(
            f"one expert: 3 · {d} · {width} = {count(3 * d * width)}",
            f"{chosen} of them: {number(used, 5)}",
        ),
        traps=(
            Trap(held, "That is what the layer holds; a token uses only its own experts."),
            Trap(used * 2 / 3, "A gated MLP has three matrices."),
        ),
        check=f'dscale calc "3*{chosen}*{d}*{width}"',
    )


@problem(
    "transformers",
    "Sparsity",
    cases=("transformers.moe_sparsity_deepseek:sparsity",),
    experts=EXPERTS,
    chosen=CHOSEN,
)
def sparsity_of_experts(experts: int, chosen: int) -> Posed | None:
    if chosen >= experts:
        return None
    held, used = expert_counts(4096, 2048, experts, chosen)
    answer = held / used
    return Posed(
        ask=f"An MoE layer has {experts} experts and each token uses {chosen}. How many times more expert parameters does it hold than "
        f"a token uses?",
        answer=answer,
        hints=("All experts are alike.", "E/k."),
        steps=(f"held: {experts} experts, used: {chosen}", f"{experts}/{chosen} = {number(answer)}"),
        traps=(
            Trap(float(experts), "A token uses more than one expert.")
            if chosen > 1
            else Trap(experts - 1.0, "That is what it holds beside the one in use; the ratio is of all to that one."),
            Trap(1 / answer, "That is the share that is used."),
        ),
        check=f'dscale calc "{experts}/{chosen}"',
    )


@problem(
    "transformers",
    "The batch an MoE needs",
    chip=("v5e", "v5p", "v6e", "h100", "b200", "v4"),
    weights=("int8", "bf16"),
    experts=EXPERTS,
    chosen=CHOSEN,
)
def critical_batch_of_experts(chip: str, weights: str, experts: int, chosen: int) -> Posed | None:
    if chosen >= experts:
        return None
    loaded = load_chip(chip)
    rates = rates_of(loaded)
    dense = float(critical_batch(rates, weights=weights))
    answer = dense * experts / chosen
    intensity = loaded.intensity("bf16")
    size = {"bf16": 2, "int8": 1}[weights]
    return Posed(
        ask=f"A {chip} does {number(intensity)} bf16 FLOPs while it reads one byte of HBM. From how many tokens a step on are the experts of "
        f"an MoE bound by compute there, with {weights} weights, bf16 matmuls, {experts} experts and {chosen} for each token? All experts are "
        f"read, routing is even, and only the weights' bytes count.",
        answer=answer,
        hints=(
            "Each expert gets B·k/E tokens.",
            f"2·B·k·D·F FLOPs against {size}·E·D·F bytes: B = C/W · {size}/2 · E/k.",
        ),
        steps=(
            f"a dense layer: {number(intensity)} · {size}/2 = {number(dense)} tokens",
            f"times E/k = {number(experts / chosen)}: {count(answer)}",
        ),
        traps=(
            Trap(dense, "That is a dense layer; a token uses only k of the E experts that are read."),
            Trap(dense * experts, "Each token goes to k experts, so they fill k times as fast.")
            if chosen > 1
            else Trap(answer * 2, "A multiply-add is two FLOPs."),
            Trap(answer * 2 / size if size == 1 else answer / 2, "How many bytes has a weight?"),
        ),
        check=f'dscale calc "critical_batch({chip}, weights={weights}) * {experts}/{chosen}"',
    )


@problem(
    "transformers",
    "Training FLOPs of an MoE",
    model=(
        "mixtral-8x7b",
        "deepseek-v3",
        "qwen3-30b-a3b",
        "qwen3-235b-a22b",
        "gpt-oss-120b",
        "llama4-maverick",
        "mixtral-8x22b",
    ),
    tokens=(1, 1000, 4096, 1_000_000),
)
def training_flops_of_an_moe(model: str, tokens: int) -> Posed | None:
    counts = count_parameters(load_model(model))
    answer = 6.0 * counts.active * tokens
    if counts.active > 0.7 * counts.total:
        return None
    return Posed(
        ask=f"{model} has {number(counts.total)} parameters, of which a token uses {number(counts.active)}. By the rule of 6, how many FLOPs "
        f"does training cost for {count(tokens)} token{'s' if tokens > 1 else ''} (attention's dot products left out)?",
        answer=answer,
        dimension="FLOP",
        hints=("Experts that a token does not use cost it nothing.", "6 · parameters used · tokens."),
        steps=(
            f"parameters used: {number(counts.active)}",
            f"6 · {number(counts.active)} · {count(tokens)} = {number(answer)}",
        ),
        traps=(
            Trap(6.0 * counts.total * tokens, "That counts every expert; a token uses only its own."),
            Trap(answer / 3, "That is the forward pass."),
        ),
        check=f'dscale calc "flops({model}, tokens={tokens})"',
    )
