"""Problems of the chapter on FP8 and FP4: bytes, scales, peaks, critical batches, decode floors, traffic."""

from dragonscale.course.closed_forms.decode_floor import critical_batch, decode_times, linear_cost
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.models import count_parameters, kv_bytes_per_token, load_model
from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.rooflines import rates_of, roofline

MODELS = ("llama3-70b", "llama3-8b", "llama3-405b", "qwen3-32b", "gemma3-27b", "mixtral-8x7b", "deepseek-v3")
FP8 = ("h100", "h200", "b200", "gb200", "mi300x", "mi355x", "tpu7x", "l40s")
FP4 = ("b200", "gb200", "b300", "gb300")
SCALED = {
    "mxfp8": (8, 8, 32, "one 8-bit scale for 32 values"),
    "mxfp4": (4, 8, 32, "one 8-bit scale for 32 values"),
    "nvfp4": (4, 8, 16, "one 8-bit scale for 16 values"),
}


def params_of(model: str) -> float:
    return float(count_parameters(load_model(model)).total)


@problem("formats", "Bytes of a scaled format", model=MODELS, dtype=("nvfp4", "mxfp4", "mxfp8"))
def bytes_of_a_scaled_format(model: str, dtype: str) -> Posed:
    bits, scale, block, told = SCALED[dtype]
    params, each = params_of(model), FORMATS[dtype].weight
    answer = params * each
    return Posed(
        ask=f"All {number(params)} weights of {model} are stored in {dtype}: {bits} bits each, and {told}. How many bytes are that?",
        answer=answer,
        dimension="bytes",
        hints=("The scales are bytes too.", "bytes a weight = (bits + scale bits / block) / 8."),
        steps=(
            f"({bits} + {scale}/{block}) / 8 = {each} bytes a weight",
            f"{number(params)} · {each} = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(2 * params, "That is bf16."),
            Trap(answer * 8, "Bits, not bytes."),
            Trap(params * bits / 8, "The scales were left out."),
        ),
        check=f'dscale calc "{model}.params * ({bits} + {scale}/{block}) / 8 * 1byte"',
        tolerance=0.01,
    )


@problem("formats", "How much faster at most", chip=FP8, dtype=("fp8", "fp4"))
def how_much_faster_at_most(chip: str, dtype: str) -> Posed | None:
    if dtype == "fp4" and chip not in FP4:
        return None
    rates = load_chip(chip)
    answer = rates.peak(dtype) / rates.peak("bf16")
    bits = {"fp8": 8, "fp4": 4}[dtype]
    other = next((one for one in (2.0, 4.0) if abs(one - answer) > 0.1), 4.0)
    return Posed(
        ask=f"How many times as fast can a compute-bound matmul be in {dtype} as in bf16 on {chip} at most, by the peaks that `dscale chips {chip}` shows?",
        answer=answer,
        hints=("A compute-bound matmul runs at the peak of its format.", "speed-up = peak in the narrow format / peak in bf16."),
        steps=(
            f"{dtype}: {amount(rates.peak(dtype), 'FLOP/s')}",
            f"bf16: {amount(rates.peak('bf16'), 'FLOP/s')}",
            f"ratio {number(answer)} (bits alone would say {16 // bits})",
        ),
        traps=(Trap(1 / answer, "That is the share of the time that is left."), Trap(other, "Take the chip's own peaks; they need not follow the bits.")),
        check=f'dscale calc "{chip}.{dtype} / {chip}.bf16"',
    )  # fmt: skip


@problem("formats", "Critical batch of a format", chip=FP8, weights=("fp8", "bf16"), compute=("fp8", "bf16"))
def critical_batch_in_fp8(chip: str, weights: str, compute: str) -> Posed | None:
    if (weights, compute) == ("bf16", "fp8"):
        return None
    rates, one = rates_of(load_chip(chip)), load_chip(chip)
    answer = float(critical_batch(rates, weights, compute))
    size = {"fp8": 1, "bf16": 2}[weights]
    return Posed(
        ask=f"Weights are stored in {weights} and multiplied in {compute} on {chip} ({amount(one.peak(compute), 'FLOP/s')} in {compute}, "
        f"HBM {amount(one.bandwidth('hbm'), 'bytes/s')}). From which batch of tokens on is a matmul bound by compute, activations left out?",
        answer=answer,
        hints=("Set the time to multiply equal to the time to load the weights.", "B = bytes a weight / 2 · C / W, with C the peak of the format that is multiplied."),
        steps=(
            f"T_math = 2·B·D·F / {number(one.peak(compute))}",
            f"T_load = {size}·D·F / {number(one.bandwidth('hbm'))}",
            f"B = {size}/2 · {number(one.peak(compute))} / {number(one.bandwidth('hbm'))} = {number(answer)}",
        ),
        traps=(
            Trap(2 * answer, "A multiply-add is two FLOPs."),
            Trap(answer / 2, "Count the bytes of a weight and two FLOPs for it."),
        ),
        check=f'dscale calc "critical_batch({chip}, weights={weights}, compute={compute})"',
    )  # fmt: skip


@problem(
    "formats",
    "The floor of a decode step",
    model=MODELS,
    chip=("h200", "h100", "b200", "v6e", "mi300x"),
    chips=(8, 4, 16),
    weights=("fp8", "bf16", "int4"),
)
def floor_of_a_decode_step(model: str, chip: str, chips: int, weights: str) -> Posed | None:
    params, one = params_of(model), load_chip(chip)
    size = {"fp8": 1.0, "bf16": 2.0, "int4": 0.5}[weights]
    if params * size > chips * one.hbm.capacity or model in ("mixtral-8x7b", "deepseek-v3"):
        return None
    answer = float(decode_times(1, 0, params, chips, rates_of(one), weights=weights).weights)
    return Posed(
        ask=f"A decode step must read all {number(params)} weights of {model} once. In {weights} ({size:g} bytes each, scales left out), split over "
        f"{chips} {chip} (HBM {amount(one.bandwidth('hbm'), 'bytes/s')} each): how long does that take at least?",
        answer=answer,
        dimension="s",
        hints=("Each chip reads its share.", "T = bytes · P / (chips · W)."),
        steps=(
            f"{number(params)} · {size:g} bytes = {amount(params * size, 'bytes')}",
            f"/ ({chips} · {amount(one.bandwidth('hbm'), 'bytes/s')}) = {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * chips, "Every chip reads its own share at the same time."),
            Trap(answer / size if size != 1 else 2 * answer, f"Count {size:g} bytes a weight."),
        ),
        check=f'dscale calc "{model}.params * {size:g}byte / ({chips} * {chip}.hbm_bandwidth)"',
    )  # fmt: skip


@problem(
    "formats",
    "What a narrow cache saves",
    model=("llama3-70b", "llama3-8b", "qwen3-32b", "llama3-405b"),
    context=(8192, 2048, 32768, 131072),
    batch=(32, 1, 8, 64),
    kv=("fp8", "bf16"),
)
def what_a_narrow_cache_takes(model: str, context: int, batch: int, kv: str) -> Posed:
    each = float(kv_bytes_per_token(load_model(model), kv))
    answer = each * context * batch
    return Posed(
        ask=f"A KV cache of {model} in {kv} holds {batch} sequence{'s' * (batch > 1)} of {count(context)} tokens. How many bytes is it "
        f"(`dscale models {model}` has the layers, KV heads and head dim)?",
        answer=answer,
        dimension="bytes",
        hints=("Keys and values, each layer, each KV head.", "2 · bytes · layers · KV heads · head dim · tokens."),
        steps=(
            f"{amount(each, 'bytes')} a token",
            f"· {count(context)} · {batch} = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer / 2, "Keys and values are both kept; bf16 is two bytes, fp8 one."),
            Trap(2 * answer, "Count one byte for fp8 and two for bf16."),
        ),
        check=f'dscale calc "kv_bytes({model}, {context * batch}, dtype={kv})"',
        tolerance=0.03,
    )  # fmt: skip


@problem(
    "formats",
    "Bytes of a gathered activation",
    d=(8192, 4096, 5120, 16384),
    tokens=(4096, 8192, 16384, 65536),
    wire=("fp8", "bf16"),
    ways=(8, 4, 2, 16),
)
def bytes_of_a_gathered_activation(d: int, tokens: int, wire: str, ways: int) -> Posed:
    size = {"fp8": 1, "bf16": 2}[wire]
    answer = float(wire_bytes("all_gather", size * d * tokens, ways))
    return Posed(
        ask=f"Activations [{count(tokens)}, {count(d)}] are gathered over {ways} chips in {wire}. How many bytes does each chip receive? Count exactly: its own part it has already.",
        answer=answer,
        dimension="bytes",
        hints=("A chip has its own share already.", "received = V · (n − 1)/n, V the whole array's bytes."),
        steps=(
            f"V = {size} · {count(tokens)} · {count(d)} = {amount(size * d * tokens, 'bytes')}",
            f"V · {ways - 1}/{ways} = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer * 2, "That is twice as wide." if size == 1 else "A gather passes each byte once; only a reduction and a gather do it twice."),
            Trap(answer / (ways - 1), "That is one chip's share; the others' arrive."),
        ) if ways > 2 else (Trap(answer * 2, "A chip has its own share already."),),
        check=f'dscale calc "{size}byte * {tokens} * {d} * {ways - 1}/{ways}"',
    )  # fmt: skip


@problem(
    "formats",
    "Which matmuls gain",
    chip=("h100", "h200", "b200", "mi300x"),
    batch=(1, 8, 16, 64, 1024, 4096, 16384),
    weights=("fp8", "bf16"),
)
def what_fp8_compute_gains(chip: str, batch: int, weights: str) -> Posed | None:
    rates, one = rates_of(load_chip(chip)), load_chip(chip)
    times = roofline(linear_cost(batch, 8192 * 28672, weights, "fp8" if weights == "fp8" else "bf16"), rates).seconds
    math, load = float(times["matrix"]), float(times["hbm"])
    if 0.6 < math / load < 1.7:
        return None
    bound = "compute" if math > load else "HBM"
    return Posed(
        ask=f"A matmul of {count(batch)} tokens with a weight of 8,192 x 28,672, stored and multiplied in {weights} on {chip} "
        f"({amount(one.peak(weights), 'FLOP/s')}, HBM {amount(one.bandwidth('hbm'), 'bytes/s')}); bytes of weights alone. What bounds it?",
        answer=bound,
        options=("compute", "HBM"),
        hints=("Work out both times.", "T_math = 2·B·D·F/C, T_load = bytes·D·F/W."),
        steps=(f"T_math = {amount(math, 's')}", f"T_load = {amount(load, 's')}", f"bound by {bound}"),
        check=f'dscale roofline "{weights}[B,8192] @ {weights}[8192,28672]" --on {chip} --sizes B={batch} --weights-only | grep "ound by"',
    )  # fmt: skip


@problem(
    "formats",
    "Weights that fit",
    chip=("h100", "h200", "b200", "mi300x", "rtx4090", "l40s", "v5e", "v6e"),
    dtype=("nvfp4", "fp8", "bf16", "mxfp4"),
    chips=(1, 2, 4, 8),
)
def weights_that_fit(chip: str, dtype: str, chips: int) -> Posed:
    one, each = load_chip(chip), FORMATS[dtype].weight
    answer = chips * one.hbm.capacity / each
    return Posed(
        ask=f"How many parameters fill the HBM of {chips} {chip} ({amount(one.hbm.capacity, 'bytes')} each) in {dtype}, scales counted ({each:g} bytes each) "
        "and nothing else kept?",
        answer=answer,
        hints=("Bytes over bytes.", "P = chips · HBM / bytes a parameter."),
        steps=(f"{chips} · {amount(one.hbm.capacity, 'bytes')} / {each:g}", f"= {number(answer / 1e9)}B parameters"),
        traps=(Trap(answer * each * each, "Divide by the bytes of a parameter."), Trap(8 * answer, "Bytes, not bits."))
        if each != 1
        else (Trap(answer / 2, "fp8 is one byte."), Trap(8 * answer, "Bytes, not bits.")),
        check=f'dscale calc "{chips} * {chip}.hbm / {each:g}byte"',
    )  # fmt: skip
