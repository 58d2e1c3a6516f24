"""Smaller numbers: int8 matmuls, weights in one format and activations in another."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.rooflines.chip_facts import peak_and_hbm, told
from dragonscale.course.words import amount, number
from dragonscale.physics.hardware import dtype_bytes, load_chip
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.rooflines import einsum_cost, rates_of, roofline

BATCHES = (64, 1, 16, 256, 512, 2048)


@problem(
    "rooflines",
    "An int8 matmul at best",
    cases=("roofline.q1_int8_bounds:t_lower",),
    chip=("v5e", "v6e", "v5p", "h100", "b200"),
    batch=BATCHES,
    model=(4096, 8192),
    hidden=(16384, 28672),
)
def int8_matmul_time(chip: str, batch: int, model: int, hidden: int) -> Posed | None:
    _, peak, hbm = peak_and_hbm(chip, "int8")
    line = parse_einsum("int8[B,D] @ int8[D,F] -> int8[B,F]")
    found = roofline(einsum_cost(line, {"B": batch, "D": model, "F": hidden}), rates_of(load_chip(chip)))
    math_s, load_s = float(found.seconds["matrix"]), float(found.seconds["hbm"])
    answer = float(found.lower)
    return Posed(
        ask=f"int8[{batch}, {model}] · int8[{model}, {hidden}] -> int8[{batch}, {hidden}], everything in HBM: how long "
        f"does it take at best, with perfect overlap? {told(chip, 'int8')}.",
        answer=answer,
        dimension="s",
        hints=(
            "One byte an element, and the int8 rate of the matrix units.",
            "T = max(2·B·D·F/C, (B·D + D·F + B·F)/W).",
        ),
        steps=(
            f"T_math = 2·{batch}·{model}·{hidden} / {number(peak)} = {amount(math_s, 's')}",
            f"T_hbm = {number(hbm * load_s)} bytes / {number(hbm)} = {amount(load_s, 's')}",
            f"the longer: {amount(answer, 's')}",
        ),
        traps=(
            Trap(min(math_s, load_s), "The longer of the two is the bound."),
            Trap(2 * answer, "int8 takes one byte an element and runs at the int8 rate."),
            Trap(math_s + load_s, "That is without any overlap."),
        ),
        check=f'dscale roofline "int8[{batch},{model}] @ int8[{model},{hidden}] -> int8[{batch},{hidden}]" --on {chip}',
    )


@problem(
    "rooflines",
    "Small weights, wide activations",
    chip=("v5e", "v5p", "v6e", "h100", "a100", "h200"),
    batch=(16, 64, 128, 256, 1024),
    stored=("int8", "int4", "fp8"),
    hidden=(28672, 14336, 53248),
)
def mixed_matmul_time(chip: str, batch: int, stored: str, hidden: int) -> Posed:
    _, peak, hbm = peak_and_hbm(chip)
    sizes = {"B": batch, "D": 8192, "F": hidden}
    line = parse_einsum(f"bf16[B,D] @ {stored}[D,F] -> bf16[B,F]")
    found = roofline(einsum_cost(line, sizes), rates_of(load_chip(chip)))
    wide = roofline(einsum_cost(parse_einsum("bf16[B,D] @ bf16[D,F]"), sizes), rates_of(load_chip(chip)))
    math_s, load_s = float(found.seconds["matrix"]), float(found.seconds["hbm"])
    answer = float(found.lower)
    traps = [Trap(min(math_s, load_s), "The longer of the two is the bound.")]
    if load_s > math_s:
        traps.append(Trap(float(wide.lower), f"The weights are loaded in {stored}, not in bf16."))
    else:
        traps.append(Trap(answer / 2, "Activations are bf16, so the multiplication runs at the bf16 rate."))
    return Posed(
        ask=f"Weights [8192, {hidden}] are stored in {stored}; activations [{batch}, 8192] and the result are bf16, and the "
        f"multiplication runs in bf16. How long does the matmul take at best out of HBM? {told(chip)}.",
        answer=answer,
        dimension="s",
        hints=(
            "The stored format decides the bytes, the wider operand the rate.",
            f"T = max(2·B·D·F/C_bf16, (2·B·D + {dtype_bytes(stored):g}·D·F + 2·B·F)/W).",
        ),
        steps=(
            f"T_math = 2·{batch}·8192·{hidden} / {number(peak)} = {amount(math_s, 's')}",
            f"T_hbm = {number(load_s * hbm)} bytes / {number(hbm)} = {amount(load_s, 's')}",
            f"the longer: {amount(answer, 's')}",
        ),
        traps=tuple(traps),
        check=f'dscale roofline "bf16[{batch},8192] @ {stored}[8192,{hidden}] -> bf16[{batch},{hidden}]" --on {chip}',
    )


@problem(
    "rooflines",
    "Int8 without overlap",
    cases=("roofline.q1_int8_bounds:t_upper",),
    chip=("v5e", "v6e", "v5p", "h100", "h200"),
    batch=BATCHES,
    model=(4096, 5120),
    hidden=(16384, 20480),
)
def int8_without_overlap(chip: str, batch: int, model: int, hidden: int) -> Posed | None:
    line = parse_einsum("int8[B,D] @ int8[D,F] -> int8[B,F]")
    found = roofline(einsum_cost(line, {"B": batch, "D": model, "F": hidden}), rates_of(load_chip(chip)))
    math_s, load_s = float(found.seconds["matrix"]), float(found.seconds["hbm"])
    if min(math_s, load_s) < 0.1 * max(math_s, load_s):
        return None  # the two bounds would be nearly the same
    return Posed(
        ask=f"The matmul int8[{batch}, {model}] · int8[{model}, {hidden}] -> int8[{batch}, {hidden}] first loads, then "
        f"computes, then stores; nothing overlaps. How long does it take? {told(chip, 'int8')}.",
        answer=float(found.upper),
        dimension="s",
        hints=("Without overlap the times add.", "T = 2·B·D·F/C + (B·D + D·F + B·F)/W."),
        steps=(
            f"T_math = {amount(math_s, 's')}, T_hbm = {amount(load_s, 's')}",
            f"together {amount(float(found.upper), 's')}",
        ),
        traps=(
            Trap(float(found.lower), "That is the lower bound, with perfect overlap."),
            Trap(min(math_s, load_s), "The sum was asked."),
        ),
        check=f'dscale roofline "int8[{batch},{model}] @ int8[{model},{hidden}] -> int8[{batch},{hidden}]" --on {chip}',
    )
