"""Problems on one layer: its FLOPs, its times under data parallelism, FSDP and tensor parallelism."""

from dragonscale.course.closed_forms.decode_floor import critical_batch
from dragonscale.course.closed_forms.schemes import read_scheme
from dragonscale.course.closed_forms.training_limits import activation_seconds, layer_seconds, weight_seconds
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.training.torus import BATCHES, TPUS, WIDTHS, rates
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines import rates_of

LAYER = read_scheme("In[B, D] · W_in[D, F] · W_out[F, D] -> Out[B, D]")


@problem(
    "training",
    "Backward FLOPs of a layer",
    cases=("training.mlp_layer_flops:bwd_flops",),
    tokens=(4096, 1024, 8192, 65536),
    d=(8192, 4096, 5120),
    width=(32768, 28672, 14336),
)
def backward_flops_of_a_layer(tokens: int, d: int, width: int) -> Posed:
    sizes = {"B": tokens, "D": d, "F": width}
    answer = float(sum(planned.line.flops(sizes) for planned in LAYER.backward))
    forward = float(sum(planned.line.flops(sizes) for planned in LAYER.forward))
    return Posed(
        ask=f"How many FLOPs is the backward pass of In[B, D] · W_in[D, F] · W_out[F, D] (two matrices), with B = {count(tokens)} tokens, "
        f"D = {count(d)}, F = {count(width)}?",
        answer=answer,
        dimension="FLOP",
        hints=("Each of the two matmuls has two gradients.", "4 · 2BDF = 8BDF."),
        steps=(
            f"one matmul: 2 · {tokens} · {d} · {width} = {number(forward / 2)}",
            f"four of them backward: {number(answer)}",
        ),
        traps=(
            Trap(forward, "That is the forward pass, two matmuls; backward has four."),
            Trap(forward + answer, "That is forward and backward together."),
        ),
        check=f'dscale calc "8 FLOP * {tokens}*{d}*{width}"',
    )


@problem(
    "training",
    "Tokens that one chip needs",
    cases=("training.single_chip_critical_batch:v5p_tokens",),
    chip=("v5p", "v5e", "v4", "v6e", "tpu7x", "h100", "b200", "a100"),
    weights=("bf16", "int8"),
)
def tokens_that_one_chip_needs(chip: str, weights: str) -> Posed:
    loaded = load_chip(chip)
    answer = float(critical_batch(rates_of(loaded), weights=weights))
    size = {"bf16": 2, "int8": 1}[weights]
    peak, width = loaded.peak("bf16"), loaded.bandwidth("hbm")
    return Posed(
        ask=f"A {chip} does {amount(peak, 'FLOP/s')} in bf16 and reads {amount(width, 'bytes/s')} from HBM. How many tokens must one chip have before a "
        f"matmul with {weights} weights (multiplied in bf16, tokens far fewer than D and F) is bound by compute?",
        answer=answer,
        hints=("Compare 2BDF FLOPs with the bytes of the weights.", f"B = {size}·C/(2·W)."),
        steps=(
            f"T_math = 2·B·D·F / {amount(peak, 'FLOP/s')}, T_load = {size}·D·F / {amount(width, 'bytes/s')}",
            f"B = {size}/2 · {number(peak)} / {number(width)} = {number(answer)}",
        ),
        traps=(
            Trap(
                answer * 2 / size if size == 1 else answer / 2,
                "How many bytes has a weight, and how many FLOPs a multiply-add?",
            ),
            Trap(answer * 2, "A multiply-add is two FLOPs."),
        ),
        check=f'dscale calc "critical_batch({chip}, weights={weights})"',
    )


@problem(
    "training",
    "Gradient AllReduce of a layer",
    cases=("training.dp_layer_times:T_comms",),
    chip=TPUS,
    d=(8192, 4096, 5120, 16384),
    width=WIDTHS,
)
def gradient_reduction_of_a_layer(chip: str, d: int, width: int) -> Posed:
    loaded = load_chip(chip)
    answer = float(weight_seconds(loaded, d, width, times=4))
    return Posed(
        ask=f"{rates(loaded)}. With plain data parallelism over one axis, how long do the AllReduces of the bf16 gradients of W_in[D, F] and "
        f"W_out[F, D] take, D = {count(d)} and F = {count(width)}? An AllReduce of V bytes takes 2V/W.",
        answer=answer,
        dimension="s",
        hints=("Each gradient has 2·D·F bytes.", "2 · 2 · 2DF/W = 8DF/W."),
        steps=(
            f"one gradient: 2 · {d} · {width} = {amount(2 * d * width, 'bytes')}",
            f"two AllReduces of 2V/W each: {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer / 2, "An AllReduce is a ReduceScatter and an AllGather; and there are two gradients."),
            Trap(answer * 2, "W is both directions of the axis already."),
        ),
        check=f'dscale calc "weight_seconds({chip}, d={d}, width={width}, times=4)"',
    )


@problem(
    "training",
    "Backward compute of a layer",
    cases=("training.dp_layer_times:T_math",),
    chip=TPUS,
    tokens=BATCHES,
    chips=(1024, 256, 512, 2048, 4096),
    width=WIDTHS,
)
def backward_compute_of_a_layer(chip: str, tokens: int, chips: int, width: int) -> Posed:
    loaded, d = load_chip(chip), 8192
    answer = float(layer_seconds(loaded, tokens, d, width, chips, passes=4))
    peak = loaded.peak("bf16")
    return Posed(
        ask=f"{count(tokens)} tokens are shared by {count(chips)} chips of {amount(peak, 'FLOP/s')} each. How long does the backward pass of a layer "
        f"of two matrices, {count(d)} x {count(width)} and {count(width)} x {count(d)}, compute at the peak?",
        answer=answer,
        dimension="s",
        hints=("Backward has four matmuls.", "8BDF/(N·C)."),
        steps=(
            f"FLOPs: 8 · {tokens} · {d} · {width} = {number(8 * tokens * d * width)}",
            f"over {chips} chips of {amount(peak, 'FLOP/s')}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer / 2, "That is the forward pass; backward has four matmuls."),
            Trap(answer * 1.5, "That is forward and backward together."),
        ),
        check=f'dscale calc "layer_seconds({chip}, tokens={tokens}, d={d}, width={width}, chips={chips}, passes=4)"',
    )


@problem(
    "training",
    "Weights gathered by FSDP",
    cases=("training.fsdp_layer_times:T_comms_fwd",),
    chip=TPUS,
    d=(8192, 4096, 16384),
    width=WIDTHS,
    axes=(1, 2, 3),
)
def weights_gathered_by_fsdp(chip: str, d: int, width: int, axes: int) -> Posed | None:
    loaded = load_chip(chip)
    if axes > loaded.network.axes:  # pyright: ignore[reportAttributeAccessIssue]
        return None
    answer = float(weight_seconds(loaded, d, width, axes=axes))
    return Posed(
        ask=f"{rates(loaded)}. FSDP gathers W_in[D, F] and W_out[F, D] in bf16 over {axes} ax{'i' if axes == 1 else 'e'}s in the forward pass, with D = {count(d)} "
        f"and F = {count(width)}. How long does that take? An AllGather of V bytes takes V/W on one axis.",
        answer=answer,
        dimension="s",
        hints=("Two weights of 2·D·F bytes.", "4DF/(M·W)."),
        steps=(
            f"bytes: 2 · 2 · {d} · {width} = {amount(4 * d * width, 'bytes')}",
            f"over {axes} axes: {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * 2, "That is the backward pass (weights again, and gradients), or W counted one way."),
            Trap(answer / 2, "There are two weights, of two bytes a number."),
        ),
        check=f'dscale calc "weight_seconds({chip}, d={d}, width={width}, axes={axes})"',
    )


@problem(
    "training",
    "Activations gathered by tensor parallelism",
    cases=("training.tp_layer_times:T_comms",),
    chip=TPUS,
    tokens=(8192, 1024, 2048, 4096, 16384),
    d=(8192, 4096, 5120, 16384),
    ways=(8, 4, 16),
)
def activations_gathered_by_tp(chip: str, tokens: int, d: int, ways: int) -> Posed:
    loaded = load_chip(chip)
    answer = float(activation_seconds(loaded, tokens, d))
    return Posed(
        ask=f"{rates(loaded)}. TP={ways} over one axis gathers In[B, D_Y] and scatters Out[B, D_Y] in the forward pass of a layer, in bf16, with "
        f"B = {count(tokens)} and D = {count(d)}. How long do the two take together? An AllGather or ReduceScatter of V bytes takes V/W.",
        answer=answer,
        dimension="s",
        hints=("Each moves the whole array of B·D numbers, whatever the degree.", "2 · 2BD/W = 4BD/W."),
        steps=(
            f"one array: 2 · {tokens} · {d} = {amount(2 * tokens * d, 'bytes')}",
            f"gathered once and scattered once: {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer / 2, "Two collectives, of two bytes a number."),
            Trap(
                answer / ways,
                "A gather ends with the whole array on each chip: its time does not fall with the degree.",
            ),
        ),
        check=f'dscale calc "activation_seconds({chip}, tokens={tokens}, d={d})"',
    )
