"""Problems on what a batch is good for: critical batches, attention's intensity, what bounds a step."""

from dragonscale.course.closed_forms.decode_floor import (
    attention_intensity,
    attention_prefill_length,
    critical_batch,
    linear_cost,
)
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import CHIPS, bytes_told, rates_told
from dragonscale.course.words import count, number
from dragonscale.physics.hardware import dtype_bytes, load_chip
from dragonscale.physics.rooflines import rates_of

FORMATS = (
    ("int8", "bf16"), ("int8", "int8"), ("bf16", "bf16"), ("int4", "bf16"), ("int4", "int8"), ("fp8", "bf16"),
    ("fp8", "fp8"),
)  # fmt: skip


@problem(
    "inference",
    "From which batch on decode is bound by compute",
    cases=("inference.bcrit_int8_weights", "applied-inference.pareto_compute_bound_batch"),
    formats=FORMATS,
    chip=CHIPS,
)
def critical_batch_of_formats(formats: tuple[str, str], chip: str) -> Posed | None:
    weights, compute = formats
    machine = load_chip(chip)
    if compute not in machine.matrix:
        return None
    answer = float(critical_batch(rates_of(machine), weights, compute))
    peak, hbm = number(machine.peak(compute)), number(machine.bandwidth("hbm"))
    narrow = f"Weights in {weights} take {bytes_told(weights)} each, not 2 bytes."
    traps = [Trap(answer * 2 / dtype_bytes(weights), narrow)] if dtype_bytes(weights) != 2 else []
    traps.append(Trap(2 * answer, "A multiply-add is two FLOPs: 2·B·P, not B·P."))
    if machine.peak(compute) != machine.peak("bf16"):
        wrong = answer * machine.peak("bf16") / machine.peak(compute)
        traps.append(Trap(wrong, f"The matmuls run in {compute}: take that peak, not bf16's."))
    return Posed(
        ask=f"Weights are stored in {weights} and multiplied in {compute}. {rates_told(machine, compute)} From how "
        "many "
        "tokens in a decode step on do the matmuls take longer than loading their weights?",
        answer=answer,
        hints=(
            "Compare the time to multiply B tokens by P weights with the time to load P weights.",
            "2·B·P/C = b·P/W, with b the bytes of a weight: B = b/2 · C/W.",
        ),
        steps=(
            f"multiplying: 2·B·P / {peak}",
            f"loading: {dtype_bytes(weights):g}·P / {hbm}",
            f"B = {dtype_bytes(weights):g}/2 · {peak} / {hbm} = {number(answer)}",
        ),
        traps=tuple(traps),
        check=f'dscale calc "critical_batch({chip}, weights={weights}, compute={compute})"',
    )


@problem(
    "inference",
    "The critical batch of an MoE",
    experts=((16, 2), (256, 8), (8, 2), (128, 4), (64, 6), (128, 8), (384, 8)),
    chip=CHIPS,
)
def critical_batch_of_experts(experts: tuple[int, int], chip: str) -> Posed:
    held, used = experts
    machine = load_chip(chip)
    dense = float(critical_batch(rates_of(machine)))
    answer = float(critical_batch(rates_of(machine), sparsity=held / used))
    return Posed(
        ask=f"An MoE layer has {held} experts, of which a token uses {used}; weights and matmuls are bf16. "
        f"{rates_told(machine)} How many tokens must a decode step have before the experts' matmuls are bound by "
        "compute, "
        "if tokens spread evenly and every expert's weights are loaded?",
        answer=answer,
        hints=(
            "Every expert is loaded, but a token is multiplied by few of them.",
            "2·B·k·P_e/C = 2·E·P_e/W, so B = C/W · E/k.",
        ),
        steps=(
            f"a dense layer: C/W = {number(dense)} tokens",
            f"each expert sees B·{used}/{held} tokens, which must reach that",
            f"B = {number(dense)} · {held}/{used} = {number(answer)}",
        ),
        traps=(
            Trap(dense, "That is a dense layer's: here each expert sees only a part of the tokens."),
            Trap(dense * held, "A token uses several experts: divide by k."),
        ),
        check=f'dscale calc "critical_batch({chip}, sparsity={held}/{used})"',
    )


@problem(
    "inference",
    "FLOPs per byte of a prompt's attention",
    cases=("inference.attn_intensity:prefill",),
    tokens=(8192, 512, 1024, 2048, 4096, 16384, 32768),
    groups=(1, 2, 4, 8, 16),
)
def intensity_of_prompt_attention(tokens: int, groups: int) -> Posed:
    answer = float(attention_intensity(tokens, tokens, groups))
    asked = (
        "every query head has keys and values of its own" if groups == 1 else f"{groups} query heads share a KV head"
    )
    return Posed(
        ask=f"A prompt of {count(tokens)} tokens attends to itself with flash attention (scores never reach HBM); "
        f"{asked}, all in bf16, no causal mask counted. How many FLOPs does attention do for each byte of queries, "
        "keys, values and outputs it moves?",
        answer=answer,
        hints=(
            "Queries and outputs have G heads for each head of keys and values.",
            "FLOPs 4·T·S·G·H over bytes 4·S·H + 4·T·G·H; with T = S that is T·G/(G + 1).",
        ),
        steps=(
            f"FLOPs: 4·{count(tokens)}²·{groups}·H",
            f"bytes: 4·{count(tokens)}·H for keys and values, 4·{count(tokens)}·{groups}·H for queries and outputs",
            f"{count(tokens)}·{groups}/({groups}+1) = {number(answer)}",
        ),
        traps=(
            Trap(tokens * groups, "Queries and outputs move as well, not only keys and values."),
            Trap(answer / 2, "QK and PV are two matmuls of 2·T·S·H FLOPs each."),
        ),
        check=f'dscale calc "attention_intensity({tokens}, {tokens}, groups={groups})"',
    )


@problem(
    "inference",
    "How long a prompt must be",
    cases=("inference.attn_prefill_threshold",),
    chip=CHIPS,
    groups=(1, 2, 4, 8, 16),
)
def prompt_that_binds_compute(chip: str, groups: int) -> Posed:
    machine = load_chip(chip)
    answer = float(attention_prefill_length(rates_of(machine), groups))
    alpha = machine.intensity()
    shared = "no heads shared (multi-head)" if groups == 1 else f"{groups} query heads to a KV head"
    return Posed(
        ask=f"From how many prompt tokens on is a prompt's flash attention, bf16, {shared}, bound by compute? "
        f"{rates_told(machine)} Count queries, keys, values and outputs once each, and the whole square of scores.",
        answer=answer,
        hints=(
            "Set the FLOPs per byte of attention equal to those of the chip.",
            "T·G/(G + 1) = C/W, so T = C/W · (G + 1)/G.",
        ),
        steps=(
            f"the chip does {number(alpha)} FLOPs while a byte arrives",
            f"attention does T·{groups}/{groups + 1} FLOPs per byte",
            f"T = {number(alpha)} · {groups + 1}/{groups} = {number(answer)}",
        ),
        traps=(
            Trap(alpha / 2 if groups == 1 else 2 * alpha, "Weigh queries and outputs by the heads that share a cache."),
            Trap(2 * answer, "QK and PV together are four FLOPs for each query, key and element of a head."),
        ),
        check=f'dscale calc "attention_prefill_length({chip}, groups={groups})"',
    )


@problem(
    "inference",
    "What the matmuls of a decode step wait for",
    batch=(100, 16, 32, 64, 128, 200, 256, 400, 600, 1000),
    formats=FORMATS,
    chip=CHIPS,
)
def bound_of_decode_matmuls(batch: int, formats: tuple[str, str], chip: str) -> Posed | None:
    weights, compute = formats
    machine = load_chip(chip)
    if compute not in machine.matrix:
        return None
    critical = float(critical_batch(rates_of(machine), weights, compute))
    if 0.9 < batch / critical < 1.1:
        return None
    cost = linear_cost(batch, 1, weights, compute)
    binds = "compute" if cost.intensity() > machine.intensity(compute) else "HBM"
    return Posed(
        ask=f"{batch} sequences decode at once. Weights are {weights}, matmuls run in {compute}. "
        f"{rates_told(machine, compute)} Are the matmuls with the weights bound by compute or by HBM?",
        answer=binds,
        options=("compute", "HBM"),
        hints=("Find the batch at which both take equally long.", "B = b/2 · C/W, with b the bytes of a weight."),
        steps=(
            f"critical batch: {dtype_bytes(weights):g}/2 · {number(machine.intensity(compute))} = {number(critical)}",
            f"{batch} is {'more' if batch > critical else 'fewer'}: bound by {binds}",
        ),
        check=f'dscale roofline "{compute}[{batch},8192] @ {weights}[8192,28672]" --on {chip} --weights-only',
    )


@problem(
    "inference",
    "Can a batch help attention",
    groups=(1, 4, 8, 16),
    keys=(8192, 2048, 4096, 32768, 131072),
    kv=("bf16", "int8"),
)
def intensity_of_decode_attention(groups: int, keys: int, kv: str) -> Posed:
    answer = float(attention_intensity(1, keys, groups, kv, cache_only=True))
    shared = "each query head has a KV head of its own" if groups == 1 else f"{groups} query heads share each KV head"
    each = dtype_bytes(kv)
    return Posed(
        ask=f"64 sequences of {count(keys)} cached tokens decode one token each; {shared}, the "
        f"cache is {kv}. How many FLOPs does attention do for each byte of the cache that it reads?",
        answer=answer,
        hints=(
            "Every sequence brings a cache of its own, so the batch is in FLOPs and bytes alike.",
            "4·S·G·H FLOPs over 2·S·H keys and values of b bytes: 2·G/b.",
        ),
        steps=(
            f"FLOPs of a sequence and KV head: 4·{count(keys)}·{groups}·H",
            f"bytes: 2·{count(keys)}·H·{each:g}",
            f"2·{groups}/{each:g} = {number(answer)}, whatever the batch and the context",
        ),
        traps=(
            Trap(answer * 64, "A larger batch brings as many more bytes as FLOPs."),
            Trap(answer / 2, "QK and PV are two matmuls."),
        ),
        check=f'dscale calc "attention_intensity(1, {keys}, groups={groups}, kv={kv}, cache_only=1)"',
    )
