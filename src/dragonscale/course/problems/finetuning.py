"""Problems of the chapter on fine-tuning: what full, LoRA and QLoRA runs hold, and what they compute."""

from dragonscale.course.closed_forms.rules_of_thumb import run_seconds, state_bytes
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.models import count_parameters, load_model
from dragonscale.models.lora import adapted_parameters, adapter_parameters
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.slices import chips_to_hold
from dragonscale.physics.kernels.dtypes import FORMATS, format_name
from dragonscale.physics.rooflines.counts import model_flops

MODELS = ("llama3-8b", "llama3-70b", "llama3-405b", "qwen3-32b", "qwen3-8b", "gemma3-27b", "mistral-7b")
RANKS = (16, 4, 8, 32, 64, 128)
MOMENTS = ("fp32", "fp32")
CHIPS = ("h100", "h200", "a100", "b200", "rtx4090", "l40s", "mi300x")


def _model(name: str) -> tuple[Transformer, float]:
    model = load_model(name)
    return model, float(count_parameters(model).total)


def _adapters(model: Transformer, rank: int) -> float:
    return float(sum(adapter_parameters(model.program().sections[1:-1], rank).values()))


@problem("finetuning", "State of a full fine-tune", model=MODELS, copies=("master", "book"))
def state_of_a_full_finetune(model: str, copies: str) -> Posed:
    _, params = _model(model)
    more = ("fp32", "bf16") if copies == "master" else ()
    answer = float(state_bytes(params, "bf16", MOMENTS, *more))
    each = answer / params
    told = (
        "bf16 weights and gradients, fp32 master weights and two fp32 moments"
        if more
        else "bf16 weights and two fp32 moments"
    )
    return Posed(
        ask=f"A full fine-tune of {model} ({number(params)} parameters) keeps {told}. How many bytes are that, activations aside?",
        answer=answer,
        dimension="bytes",
        hints=("Add the bytes of each copy of a parameter.", f"{'2 + 2 + 4 + 8 = 16' if more else '2 + 8 = 10'} bytes a parameter."),
        steps=(f"{'2 + 2 + 4 + 4 + 4' if more else '2 + 4 + 4'} = {each:g} bytes a parameter", f"{number(params)} · {each:g} = {amount(answer, 'bytes')}"),
        traps=(
            Trap(2 * params, "That is the weights alone."),
            Trap(params * (10 if more else 16), "Count the copies that are named, no more and no fewer."),
        ),
        check=f'dscale calc "state_bytes({model}.params{", bf16, (fp32, fp32), fp32, bf16" if more else ""})"',
    )  # fmt: skip


@problem(
    "finetuning",
    "Adapters of one matrix",
    inputs=(8192, 4096, 5120),
    outputs=(28672, 14336, 8192, 1024, 4096),
    rank=RANKS,
)
def adapters_of_one_matrix(inputs: int, outputs: int, rank: int) -> Posed:
    answer = float(rank * (inputs + outputs))
    return Posed(
        ask=f"LoRA of rank {rank} is put beside a weight of {count(inputs)} x {count(outputs)}. How many parameters does it train?",
        answer=answer,
        hints=("Two thin matrices replace one update.", "r · (inputs + outputs)."),
        steps=(
            f"A: {count(inputs)} x {rank}, B: {rank} x {count(outputs)}",
            f"{rank} · ({count(inputs)} + {count(outputs)}) = {count(answer)}",
        ),
        traps=(
            Trap(float(inputs * outputs), "That is the whole weight, which stays frozen."),
            Trap(float(rank * inputs), "Both thin matrices are trained."),
            Trap(2 * answer, "r for each input and each output, once."),
        ),
        check=f'dscale calc "{rank} * ({inputs} + {outputs})"',
        tolerance=0.01,
    )


@problem("finetuning", "Adapters of a model", model=MODELS, rank=RANKS)
def adapters_of_a_model(model: str, rank: int) -> Posed:
    loaded, params = _model(model)
    answer = _adapters(loaded, rank)
    return Posed(
        ask=f"LoRA of rank {rank} is put beside every matmul of the attention and MLP layers of {model} (sizes: `dscale models {model}`). "
        "How many parameters are trained?",
        answer=answer,
        hints=("Add r·(inputs + outputs) over the matrices of a layer, then all layers.", "L·r·(7D + 3F + 2·H·K + 2·H·N) for a gated MLP with GQA: q, k, v, o, gate, up, down."),
        steps=(
            f"a layer: r · (sum of inputs and outputs of its 7 matrices), r = {rank}",
            f"all layers: {amount(answer, 'count')}, {100 * answer / params:.2f}% of the {amount(params, 'count')} frozen",
        ),
        traps=(
            Trap(float(sum({"attention": adapter_parameters(loaded.program().sections[1:-1], rank).get("attention", 0)}.values())), "That is attention alone; the MLP has adapters too."),
            Trap(2 * answer, "r for each input and each output, once."),
        ),
        check=f'dscale estimate {model} --lora {rank} | grep "LoRA parameters, all"',
    )  # fmt: skip


@problem("finetuning", "Memory of LoRA", model=MODELS, rank=RANKS)
def memory_of_lora(model: str, rank: int) -> Posed:
    loaded, params = _model(model)
    adapters = _adapters(loaded, rank)
    answer = float(state_bytes(params, "bf16", ()) + state_bytes(adapters, "bf16", MOMENTS, "fp32", "bf16"))
    return Posed(
        ask=f"LoRA of rank {rank} on {model}: {number(params)} frozen bf16 weights, {number(adapters)} adapter parameters with 16 bytes each "
        "(weights, gradients, master copy, moments). How many bytes, activations aside?",
        answer=answer,
        dimension="bytes",
        hints=("Frozen weights have no gradients and no moments.", "2·P + 16·P_lora."),
        steps=(f"2 · {number(params)} = {amount(2 * params, 'bytes')}", f"16 · {number(adapters)} = {amount(16 * adapters, 'bytes')}", f"together {amount(answer, 'bytes')}"),
        traps=(
            Trap(16 * params, "Only the adapters have gradients and moments."),
            Trap(16 * adapters, "The frozen weights are in memory too."),
            Trap(2 * params, "The adapters and their state are in memory too."),
        ),
        check=f'dscale estimate {model} --lora {rank} | grep "LoRA: bf16"',
        tolerance=0.005,
    )  # fmt: skip


@problem("finetuning", "Memory of QLoRA", model=MODELS, rank=RANKS)
def memory_of_qlora(model: str, rank: int) -> Posed:
    loaded, params = _model(model)
    blocks = loaded.program().sections[1:-1]
    narrow, adapters, each = (
        float(adapted_parameters(blocks)),
        _adapters(loaded, rank),
        FORMATS[format_name("int4")].weight,
    )
    frozen = narrow * each + 2 * (params - narrow)
    answer = float(frozen + state_bytes(adapters, "bf16", MOMENTS, "fp32", "bf16"))
    return Posed(
        ask=f"QLoRA of rank {rank} on {model}: of {number(params)} weights, the {number(narrow)} of attention and MLP matmuls are stored in 4 bits "
        f"({each} bytes with scales), the rest in bf16; {number(adapters)} adapter parameters take 16 bytes each. How many bytes, activations aside?",
        answer=answer,
        dimension="bytes",
        hints=("Three parts: 4-bit weights, bf16 weights, adapters.", f"{each}·P_4bit + 2·(P − P_4bit) + 16·P_lora."),
        steps=(
            f"{each} · {number(narrow)} = {amount(each * narrow, 'bytes')}",
            f"2 · {number(params - narrow)} = {amount(2 * (params - narrow), 'bytes')}",
            f"16 · {number(adapters)} = {amount(16 * adapters, 'bytes')}; together {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(float(2 * params + 16 * adapters), "That is LoRA with bf16 weights."),
            Trap(params * each + 16 * adapters, "Embeddings and head stay in bf16."),
            Trap(frozen, "The adapters and their state are in memory too."),
        ),
        check=f'dscale estimate {model} --lora {rank} | grep "QLoRA: 4"',
        tolerance=0.005,
    )  # fmt: skip


@problem(
    "finetuning",
    "GPUs that hold it",
    model=("llama3-70b", "llama3-8b", "qwen3-32b", "llama3-405b", "gemma3-27b"),
    chip=CHIPS,
    way=("full", "LoRA"),
)
def gpus_that_hold_it(model: str, chip: str, way: str) -> Posed:
    _, params = _model(model)
    one, each = load_chip(chip), {"full": 16, "LoRA": 2}[way]
    answer = float(chips_to_hold(one, each * params))
    told = "16 bytes a parameter" if way == "full" else "2 bytes a frozen parameter, adapters left out"
    return Posed(
        ask=f"A {way} fine-tune of {model} ({number(params, 6)} parameters) keeps {told}. How many {chip} ({amount(one.hbm.capacity, 'bytes')} each) hold that at "
        "least, activations aside, everything sharded evenly?",
        answer=answer,
        whole=True,
        hints=("Bytes over the bytes of a chip, rounded up.", "chips = ⌈bytes · P / HBM⌉."),
        steps=(f"{each} · {number(params, 6)} = {amount(each * params, 'bytes')}", f"/ {amount(one.hbm.capacity, 'bytes')} = {each * params / one.hbm.capacity:.2f}, so {count(answer)}"),
        traps=(
            *((Trap(answer - 1, "So many do not hold the last bytes: round up."),) if answer > 1 else ()),
            Trap(float(chips_to_hold(one, {16: 2, 2: 16}[each] * params)), "Count the bytes that are named."),
        ),
        check=f'dscale calc "ceil({each}byte * {model}.params / {chip}.hbm)"',
    )  # fmt: skip


@problem(
    "finetuning",
    "Hours of a fine-tune",
    model=MODELS,
    chip=CHIPS,
    chips=(8, 1, 4, 16, 64),
    tokens=(100e6, 10e6, 1e9, 20e9),
    mfu=(0.4, 0.3, 0.5),
)
def hours_of_a_finetune(model: str, chip: str, chips: int, tokens: float, mfu: float) -> Posed:
    _, params = _model(model)
    peak = load_chip(chip).peak("bf16")
    answer = float(run_seconds(model_flops(params, tokens), chips, peak, mfu))
    return Posed(
        ask=f"A full fine-tune of {model} ({number(params)} parameters) on {amount(tokens, 'count')} tokens runs on {chips} {chip} "
        f"({amount(peak, 'FLOP/s')} in bf16) at an MFU of {100 * mfu:.0f}%. How long does it take, by 6·P·tokens?",
        answer=answer,
        dimension="s",
        hints=("FLOPs over the FLOP/s that are reached.", "T = 6·P·tokens / (chips · peak · MFU)."),
        steps=(f"6 · {number(params)} · {number(tokens)} = {number(6 * params * tokens)} FLOPs", f"/ ({chips} · {number(peak)} · {mfu}) = {amount(answer, 's')}"),
        traps=(
            Trap(answer / 3, "Training is 6 FLOPs for each parameter and token, not 2."),
            Trap(answer * mfu, "The peak is not reached: divide by the MFU."),
        ),
        check=f'dscale calc "run_seconds(model_flops({model}.params, {tokens:g}), {chips}, {chip}.bf16, {mfu})"',
    )  # fmt: skip


@problem("finetuning", "FLOPs of a LoRA step", model=MODELS, tokens=(65536, 8192, 131072, 1048576))
def flops_of_a_lora_step(model: str, tokens: int) -> Posed:
    _, params = _model(model)
    answer = float(model_flops(params, tokens, training=False) * 2)
    return Posed(
        ask=f"In a LoRA step of {model} ({number(params)} parameters) the frozen weights need no gradients of their own, but gradients pass through them. "
        f"How many FLOPs are that for {count(tokens)} tokens, adapters and attention's dot products left out?",
        answer=answer,
        dimension="FLOP",
        hints=("Which of the three matmuls of a training step falls away?", "forward 2·P + backward of activations 2·P = 4·P a token, not 6·P."),
        steps=(f"4 · {number(params)} · {number(tokens)}", f"= {number(answer)} FLOPs"),
        traps=(
            Trap(1.5 * answer, "That is full training: the gradients of frozen weights are not computed."),
            Trap(answer / 2, "That is the forward pass alone."),
        ),
        check=f'dscale calc "4 * {model}.params * {tokens} * 1FLOP"',
    )  # fmt: skip
