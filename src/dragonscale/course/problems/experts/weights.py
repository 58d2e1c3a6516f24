"""What experts weigh, and when their matmuls are bound by compute."""

from functools import cache

from dragonscale.course.closed_forms.decode_floor import critical_batch
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.commands import calc
from dragonscale.course.words import amount, count, number
from dragonscale.models import Moe, load_model, parameters
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.kernels.routing import route
from dragonscale.physics.rooflines import rates_of

MODELS = (
    "deepseek-v3", "mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b", "qwen3-coder-480b-a35b",
    "dbrx-132b", "deepseek-moe-16b", "deepseek-v2-lite",
)  # fmt: skip
"""Those whose experts are three gated matrices, D by F, in equal layers."""


@cache
def experts_of(name: str) -> tuple[Moe, int, int]:
    """The MoE of a model's last layer, its layers that have one, and the model's width."""
    model = load_model(name)
    blocks = [layer.ffn for layer in model.layers if isinstance(layer.ffn, Moe)]
    return blocks[-1], len(blocks), model.d_model


@cache
def counted(name: str, active: bool) -> dict[str, int]:
    return parameters(load_model(name).program().sections, active=active)


@problem("experts", "Parameters of all experts", cases=(), model=MODELS)
def parameters_of_experts(model: str) -> Posed:
    moe, layers, width = experts_of(model)
    answer = counted(model, False)["experts"]
    one = 3 * width * moe.d_ff
    return Posed(
        ask=f"{model} has {layers} MoE layers of {moe.n_experts} routed experts. An expert is three matrices between the "
        f"model's width {count(width)} and its hidden width {count(moe.d_ff)}. How many parameters do the routed experts have "
        "in all?",
        answer=answer,
        hints=("One expert first.", "layers · experts · 3 · D · F"),
        steps=(
            f"one expert: 3 · {width} · {moe.d_ff} = {number(one / 1e6)}M",
            f"{layers} layers · {moe.n_experts} · {number(one / 1e6)}M = {number(answer / 1e9)}B",
        ),
        traps=(
            Trap(answer * 2 / 3, "A gated expert has three matrices, not two."),
            Trap(answer / layers, "That is one layer."),
            Trap(answer * moe.experts_per_token / moe.n_experts, "Those are the experts that one token uses."),
        ),
        check=f'dscale models {model} | grep "^experts"',
    )


@problem("experts", "Parameters that a token uses", cases=(), model=MODELS)
def active_experts(model: str) -> Posed:
    moe, layers, width = experts_of(model)
    answer, total = counted(model, True)["experts"], counted(model, False)["experts"]
    one = 3 * width * moe.d_ff
    return Posed(
        ask=f"Each token of {model} uses {moe.experts_per_token} of the {moe.n_experts} routed experts in each of its {layers} "
        f"MoE layers; an expert is three matrices of {count(width)} by {count(moe.d_ff)}. How many parameters of routed experts "
        "does a token use?",
        answer=answer,
        hints=("As all experts, but only those chosen.", "layers · k · 3 · D · F"),
        steps=(
            f"one expert: 3 · {width} · {moe.d_ff} = {number(one / 1e6)}M",
            f"{layers} · {moe.experts_per_token} · {number(one / 1e6)}M = {number(answer / 1e9)}B, of {number(total / 1e9)}B",
        ),
        traps=(
            Trap(total, "Those are all experts; a token uses a few."),
            Trap(answer / moe.experts_per_token, f"That is one expert a layer; a token uses {moe.experts_per_token}."),
        ),
        check=calc(f"{layers} * {moe.experts_per_token} * 3 * {width} * {moe.d_ff}"),
    )


@problem(
    "experts",
    "A batch that feeds every expert",
    cases=(),
    chip=("h100", "b200", "h200", "v5p", "v6e", "a100"),
    experts=(256, 8, 16, 32, 64, 128, 384),
    picks=(8, 1, 2, 4, 6),
)
def batch_that_feeds_experts(chip: str, experts: int, picks: int) -> Posed | None:
    if picks * 4 > experts:
        return None
    rates = rates_of(load_chip(chip))
    dense = critical_batch(rates)
    answer = dense * experts / picks
    return Posed(
        ask=f"On {chip} a matmul with bf16 weights turns compute-bound at {number(dense)} rows. An MoE layer has {experts} "
        f"experts, each token uses {picks}, and the router is even. How many tokens must a batch have so that every expert's "
        "matmuls are compute-bound (each expert's weights are read once)?",
        answer=answer,
        hints=("How many rows does one expert get from B tokens?", "B · k / E = critical rows, so B = rows · E / k"),
        steps=(
            f"an expert gets B · {picks} / {experts} rows",
            f"B = {number(dense)} · {experts} / {picks} = {number(answer)} tokens",
        ),
        traps=(
            Trap(dense, "That is a dense matmul; here the tokens spread over the experts."),
            Trap(dense * experts, f"Each token counts {picks} times."),
            Trap(dense * picks / experts, "The ratio is upside down: more experts need more tokens."),
        )[: 3 if picks > 1 else 1],
        check=calc(f"critical_batch({chip}) * {experts} / {picks}"),
    )


@problem(
    "experts",
    "Rows of one expert",
    cases=(),
    tokens=(4096, 512, 1024, 2048, 8192, 16384, 65536),
    experts=(256, 8, 16, 32, 64, 128),
    picks=(8, 1, 2, 4, 6),
    chips=(1, 8, 32, 64),
)
def rows_of_an_expert(tokens: int, experts: int, picks: int, chips: int) -> Posed | None:
    if chips > experts or picks >= experts:
        return None
    load = route(tokens * chips, picks, experts, chips, "balanced")
    answer = load.rows / load.active
    if answer < 1:
        return None
    spread = f" on each of {chips} GPUs over which the experts are spread" if chips > 1 else ""
    return Posed(
        ask=f"{count(tokens)} tokens{spread} go to {picks} of {experts} experts each, evenly. How many rows does the matmul of "
        "one expert have?",
        answer=answer,
        hints=("How many rows are there in all, over how many experts?", "rows = tokens of all GPUs · k / E"),
        steps=(
            f"rows in all: {count(tokens)} · {chips} · {picks} = {count(tokens * chips * picks)}",
            f"over {experts} experts: {number(answer)}",
        ),
        traps=(
            *((Trap(answer / picks, f"Each token counts {picks} times."),) if picks > 1 else ()),
            *((Trap(answer / chips, "An expert gets tokens from all GPUs of its group."),) if chips > 1 else ()),
            Trap(float(tokens * chips), "Those are all tokens; each expert gets a part of them."),
        ),
        check=calc(f"{tokens} * {chips} * {picks} / {experts}"),
    )


@problem(
    "experts",
    "What a small batch reads",
    cases=(),
    experts=(256, 32, 64, 128, 384, 512),
    picks=(8, 2, 4, 6, 10),
    batch=(32, 4, 8, 16, 24, 64),
    megabytes=(88, 19, 44, 176),
)
def weights_a_small_batch_reads(experts: int, picks: int, batch: int, megabytes: int) -> Posed:
    load = route(batch, picks, experts, 1, "random")
    mean = batch * picks / experts
    answer = load.active * megabytes * 1e6
    return Posed(
        ask=f"A decode step of {batch} tokens passes an MoE layer with {experts} experts of {megabytes} MB each; every token "
        f"picks {picks} at random. The picks of one expert are Poisson with mean B·k/E. How many bytes of expert weights does "
        "the layer read on average?",
        answer=answer,
        dimension="bytes",
        hints=("Which part of the experts is picked by nobody?", "E · (1 − exp(−B·k/E)) · bytes of an expert"),
        steps=(
            f"mean picks of an expert: {batch} · {picks} / {experts} = {number(mean)}",
            f"picked at all: {experts} · (1 − e^−{number(mean)}) = {number(load.active)}",
            f"· {megabytes} MB = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(experts * megabytes * 1e6, "Experts that no token picks are not read."),
            Trap(min(batch * picks, experts) * megabytes * 1e6, "Some tokens pick the same expert; it is read once."),
        ),
        check=calc(f"{experts} * (1 - 2.718281828 ** (-{mean:g})) * {megabytes}MB"),
    )
