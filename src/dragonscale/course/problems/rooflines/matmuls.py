"""Matmuls out of HBM: what they cost, which side of the roof they are on, tiles."""

import math

from dragonscale.course.closed_forms import critical_batch
from dragonscale.course.closed_forms.costs import tiled_matmul_cost
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.rooflines.chip_facts import CHIPS, GPUS, TPUS, peak_and_hbm, told
from dragonscale.course.words import amount, count, number, some
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.rooflines import einsum_cost, rates_of, roofline

MATMUL = parse_einsum("bf16[B,D] @ bf16[D,F]")


@problem(
    "rooflines",
    "FLOPs of a matmul",
    cases=("roofline.matmul_cost:flops",),
    batch=(512, 64, 1024, 4096, 16),
    model=(8192, 4096, 5120, 12288),
    hidden=(32768, 14336, 28672, 53248),
)
def matmul_flops(batch: int, model: int, hidden: int) -> Posed:
    answer = float(einsum_cost(MATMUL, {"B": batch, "D": model, "F": hidden}).total_flops)
    return Posed(
        ask=f"How many FLOPs does bf16[{batch}, {model}] · bf16[{model}, {hidden}] take?",
        answer=answer,
        dimension="FLOP",
        hints=("Every element of the result is a sum over the shared dim.", "FLOPs = 2·B·D·F."),
        steps=(
            f"the result has {batch} · {hidden} elements, each of {model} multiply-adds",
            f"2 · {batch} · {model} · {hidden} = {number(answer)}",
        ),
        traps=(
            Trap(answer / 2, "A multiply-add is two FLOPs."),
            Trap(3 * answer, "That is a training step; forward alone was asked."),
        ),
        check=f'dscale roofline "bf16[{batch},{model}] @ bf16[{model},{hidden}]"',
    )


@problem(
    "rooflines",
    "Bytes that a matmul reads",
    cases=("roofline.matmul_cost:bytes_read",),
    batch=(512, 64, 1024, 4096, 16384),
    model=(8192, 4096, 5120),
    hidden=(32768, 14336, 28672),
    dtype=("bf16", "int8", "fp32", "fp8"),
)
def matmul_bytes_read(batch: int, model: int, hidden: int, dtype: str) -> Posed:
    line = parse_einsum(f"{dtype}[B,D] @ {dtype}[D,F]")
    sizes = {"B": batch, "D": model, "F": hidden}
    answer = float(einsum_cost(line, sizes, counted=(0, 1)).bytes["hbm"])
    written = float(einsum_cost(line, sizes, counted=(2,)).bytes["hbm"])
    each = answer / (batch * model + model * hidden)
    traps = [Trap(answer / each * (2 if each == 1 else 1), f"An element of {dtype} takes {some(each, 'byte')}.")]
    traps.append(Trap(answer + written, "The result is written, not read."))
    return Posed(
        ask=f"{dtype}[{batch}, {model}] · {dtype}[{model}, {hidden}], both operands in HBM: "
        "how many bytes are read, each operand once?",
        answer=answer,
        dimension="bytes",
        hints=("Add up the elements of both operands.", "bytes read = bytes per element · (B·D + D·F)."),
        steps=(
            f"B·D + D·F = {count(batch * model)} + {count(model * hidden)} elements",
            f"· {each:g} = {count(answer)} bytes, {amount(answer, 'bytes')}",
        ),
        traps=tuple(traps),
        tolerance=0.005,
        check=f'dscale calc "{each:g} bytes * ({batch}*{model} + {model}*{hidden})"',
    )


@problem(
    "rooflines",
    "Where a matmul turns compute-bound",
    cases=("roofline.matmul_critical_batch_v5e:B_crit",),
    chip=("v5e", *(name for name in TPUS if name != "v5e")),
    weights=("bf16", "int8", "int4"),
)
def critical_batch_of_a_matmul(chip: str, weights: str) -> Posed:
    _, peak, hbm = peak_and_hbm(chip)
    answer = float(critical_batch(rates_of(load_chip(chip)), weights=weights))
    each = {"bf16": 2, "int8": 1, "int4": 0.5}[weights]
    own = "" if weights == "bf16" else f" The weights are stored in {weights} and multiplied as bf16."
    return Posed(
        ask=f"From which batch (tokens) on is X[B,D] · W[D,F] bound by compute, B far below D and F, so that only "
        f"the weights' bytes count?{own} {told(chip)}.",
        answer=answer,
        hints=(
            "Compare the time to multiply with the time to load the weights; D and F cancel.",
            "T_math = 2·B·D·F/C, T_load = bytes per weight·D·F/W; set them equal.",
        ),
        steps=(
            f"2·B/C = {each:g}/W",
            f"B = {each / 2:g} · C/W = {each / 2:g} · {number(peak)} / {number(hbm)} = {number(answer)}",
        ),
        traps=(
            Trap(2 * answer, f"A weight takes {some(each, 'byte')} to load and two FLOPs for each token."),
            Trap(answer / 2, "That counts only half of the bytes of a weight."),
        ),
        check=f'dscale calc "critical_batch({chip}, weights={weights})"',
    )


@problem(
    "rooflines",
    "The critical batch on GPUs",
    cases=("roofline.gpu_critical_batch_rule:B_crit",),
    chip=GPUS,
    dtype=("bf16", "fp8"),
)
def critical_batch_on_gpus(chip: str, dtype: str) -> Posed | None:
    made = load_chip(chip)
    if dtype not in made.matrix:
        return None
    _, peak, hbm = peak_and_hbm(chip, dtype)
    answer = float(critical_batch(rates_of(made), weights=dtype, compute=dtype))
    each = 2 if dtype == "bf16" else 1
    return Posed(
        ask=f"A matmul with weights and activations in {dtype} on one {made.title}, B far below D and F: from which "
        f"batch on does compute bind? {told(chip, dtype)}.",
        answer=answer,
        hints=(
            "Bytes of a weight and FLOP/s both change with the format.",
            "B = (bytes per weight / 2) · C/W, with C the rate of that format.",
        ),
        steps=(
            f"{some(each, 'byte')} a weight, two FLOPs a weight and token",
            f"B = {each}/2 · {number(peak)} / {number(hbm)} = {number(answer)}",
        ),
        traps=(
            Trap(2 * answer, "Count the bytes of one weight and the two FLOPs of a multiply-add."),
            Trap(answer / 2, "Half of that: the rate doubles with fp8 where the bytes halve."),
        ),
        check=f'dscale calc "critical_batch({chip}, weights={dtype}, compute={dtype})"',
    )


@problem(
    "rooflines",
    "Which side of the roof",
    chip=CHIPS,
    batch=(128, 512, 32, 64, 1024, 256),
    side=(8192, 4096, 16384, 2048),
)
def which_side(chip: str, batch: int, side: int) -> Posed | None:
    found = roofline(einsum_cost(MATMUL, {"B": batch, "D": side, "F": side}), rates_of(load_chip(chip)))
    math_s, load_s = float(found.seconds["matrix"]), float(found.seconds["hbm"])
    if 0.9 < math_s / load_s < 1.1:
        return None
    answer = "compute" if math_s > load_s else "HBM"
    return Posed(
        ask=f"bf16[{batch}, {side}] · bf16[{side}, {side}] on one chip, operands and result in HBM: "
        f"is it bound by compute or by HBM? {told(chip)}.",
        answer=answer,
        hints=(
            "Work out both times, or compare the intensity with C/W.",
            "intensity = 2·B·D·F / (2·(B·D + D·F + B·F)).",
        ),
        steps=(
            f"T_math = {amount(math_s, 's')}, T_hbm = {amount(load_s, 's')}",
            f"the longer binds: {answer}",
        ),
        options=("compute", "HBM"),
        check=f'dscale roofline "bf16[{batch},{side}] @ bf16[{side},{side}]" --on {chip}',
    )


@problem(
    "rooflines",
    "The crossover with every byte counted",
    chip=CHIPS,
    model=(4096, 5120, 8192, 2048),
    hidden=(16384, 14336, 28672, 11008),
)
def crossover_with_every_byte(chip: str, model: int, hidden: int) -> Posed | None:
    _, peak, hbm = peak_and_hbm(chip)
    rates = rates_of(load_chip(chip))
    # Both times are lines in B: their difference is zero at B = -T(0)/slope.
    at = {b: roofline(einsum_cost(MATMUL, {"B": b, "D": model, "F": hidden}), rates).seconds for b in (0, 1)}
    gain = float((at[1]["matrix"] - at[0]["matrix"]) - (at[1]["hbm"] - at[0]["hbm"]))
    if gain <= 0:
        return None
    answer = float(at[0]["hbm"]) / gain
    rule = float(critical_batch(rates))
    if answer / rule < 1.06 or answer > model:
        return None
    return Posed(
        ask=f"bf16[B, {model}] · bf16[{model}, {hidden}] -> bf16[B, {hidden}]: from which B on does compute bind, all "
        f"operands and the result counted as HBM traffic? {told(chip)}.",
        answer=answer,
        hints=(
            "Activations grow with B too, so the answer is a little above C/W.",
            "2·B·D·F/C = 2·(B·D + B·F + D·F)/W, solved for B.",
        ),
        steps=(
            f"B = C·D·F / (D·F·W - C·(D + F)), C = {number(peak)}, W = {number(hbm)}",
            f"B = {number(answer)}",
        ),
        traps=(
            Trap(rule, "That counts the weights alone; here B·D and B·F count too."),
            Trap(2 * answer, "A multiply-add is two FLOPs."),
        ),
        check=f'dscale roofline "bf16[B,{model}] @ bf16[{model},{hidden}]" --on {chip}',
    )


@problem(
    "rooflines",
    "Tiles read again and again",
    cases=("roofline.tiled_matmul:intensity_exact",),
    side=(4096, 8192, 16384, 2048),
    tile=(128, 256, 512, 64),
)
def tiled_intensity(side: int, tile: int) -> Posed:
    cost = tiled_matmul_cost(side, side, side, (tile, tile, tile))
    answer, moved = float(cost.intensity()), float(cost.bytes["hbm"])
    whole = float(einsum_cost(MATMUL, {"B": side, "D": side, "F": side}).intensity())
    return Posed(
        ask=f"A bf16 matmul of {side} x {side} x {side} is cut into tiles of {tile} x {tile} x {tile}: for each tile of "
        "the result, tiles of both operands are read from HBM all along the summed dim, and the result is written "
        "once. How many FLOPs does it do for each byte?",
        answer=answer,
        hints=(
            "Count the tiles of the result, and what each of them reads.",
            "bytes = 2·tm·tn·(tk·(bm·bk + bk·bn) + bm·bn); FLOPs = 2·m·k·n.",
        ),
        steps=(
            f"tiles a side: {side} / {tile} = {side // tile}",
            f"bytes = {count(moved)}, FLOPs = {number(float(cost.total_flops))}",
            f"intensity = {number(answer)}, close to b/2 = {tile / 2:g}",
        ),
        traps=(
            Trap(whole, "That reads each operand once; tiles are read again for every tile of the result."),
            Trap(2 * answer, "Both operands are read: b·b/(b + b), not b."),
        ),
        tolerance=0.01,
        check=f'dscale calc "m={side}; b={tile}; t=m/b; 2*m^3 / (2*t^2 * (t*2*b^2 + b^2))"',
    )


@problem(
    "rooflines",
    "How large a tile must be",
    chip=CHIPS,
    dtype=("bf16", "int8"),
)
def smallest_tile(chip: str, dtype: str) -> Posed | None:
    made = load_chip(chip)
    if dtype not in made.matrix:
        return None
    _, peak, hbm = peak_and_hbm(chip, dtype)
    each = 2 if dtype == "bf16" else 1
    # A long summed dim: per byte a tile of b x b does b/each FLOPs.
    long = tiled_matmul_cost(64, 2**30, 64, (64, 64, 64), dtype).intensity()
    answer = float(made.intensity(dtype)) / (float(long) / 64)
    return Posed(
        ask=f"A large {dtype} matmul is worked off in square tiles of the result, b x b, reading its rows and columns from "
        f"HBM for every tile; the summed dim is long. How large must b be for compute to bind? {told(chip, dtype)}.",
        answer=answer,
        hints=(
            "For each step along the summed dim a tile reads 2·b elements and does 2·b·b FLOPs.",
            "intensity = b / bytes per element; set it equal to C/W.",
        ),
        steps=(
            f"C/W = {number(peak)} / {number(hbm)} = {number(peak / hbm)} FLOPs per byte",
            f"b = {each} · {number(peak / hbm)} = {number(answer)}, in practice the next multiple of 128: "
            f"{128 * math.ceil(answer / 128)}",
        ),
        traps=(
            Trap(2 * answer, "2·b·b FLOPs over 2·b elements is b, not b/2, before the bytes of an element."),
            Trap(answer / 2, "Both operands are read: 2·b elements a step."),
        ),
        check=f'dscale calc "{each} * {chip}.{dtype} / {chip}.hbm_bandwidth"',
    )
