"""MXUs, vector units, padding: rates from parts."""

from dragonscale.course.closed_forms.chip_parts import reduction_shifts, systolic_flops
from dragonscale.course.closed_forms.costs import padded
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number, some
from dragonscale.evidence.xla.layouts import padded_bytes
from dragonscale.physics.hardware import load_chip

CLOCKS = (1.5e9, 0.94e9, 1.05e9, 1.75e9, 2e9)


@problem(
    "tpus",
    "FLOP/s of one MXU",
    cases=("tpus.mxu_flops:mxu_flops",),
    side=(128, 256, 64),
    clock=CLOCKS,
)
def mxu_rate(side: int, clock: float) -> Posed:
    answer = float(systolic_flops(side, side) * clock)
    return Posed(
        ask=f"A systolic array of {side} x {side} cells multiplies [8, {side}] · [{side}, {side}] in 8 cycles, at "
        f"{amount(clock, 'Hz')}. How many FLOP/s is that?",
        answer=answer,
        dimension="FLOP/s",
        hints=("Every cell does one multiply-add a cycle.", "FLOP/s = 2 · rows · columns · clock."),
        steps=(
            f"2·8·{side}·{side} FLOPs in 8 cycles = {count(2 * side * side)} FLOPs a cycle",
            f"· {number(clock)} = {amount(answer, 'FLOP/s')}",
        ),
        traps=(
            Trap(answer / 2, "A multiply-add is two FLOPs."),
            Trap(8 * answer, "The product takes 8 cycles, not one."),
        ),
        check=f'dscale calc "systolic_flops({side}, {side}) * {amount(clock, "Hz")}"',
    )


@problem(
    "tpus",
    "A chip from its parts",
    cases=("tpus.v5e_chip_flops_from_mxu:chip_flops",),
    cores=(1, 2),
    mxus=(4, 2, 1),
    side=(128, 256),
    clock=CLOCKS,
)
def chip_rate(cores: int, mxus: int, side: int, clock: float) -> Posed:
    one = float(systolic_flops(side, side) * clock)
    answer = cores * mxus * one
    traps = [Trap(answer / 2, "A multiply-add is two FLOPs.")]
    if mxus > 1:
        traps.append(Trap(answer / mxus, f"There are {mxus} MXUs in each core."))
    if cores > 1:
        traps.append(Trap(answer / side, "Every cell of the array works in every cycle, not every row."))
    return Posed(
        ask=f"A TPU has {some(cores, 'core')} with {some(mxus, 'MXU')} each, of {side} x {side} cells, at {amount(clock, 'Hz')}. "
        "Which bf16 FLOP/s can the chip reach?",
        answer=answer,
        dimension="FLOP/s",
        hints=("First one MXU, then all of them.", "FLOP/s = cores · MXUs · 2 · side² · clock."),
        steps=(
            f"one MXU: 2·{side}²·{number(clock)} = {amount(one, 'FLOP/s')}",
            f"{cores} · {mxus} of them: {amount(answer, 'FLOP/s')}",
        ),
        traps=tuple(traps),
        check=f'dscale calc "{cores} * {mxus} * systolic_flops({side}, {side}) * {amount(clock, "Hz")}"',
    )


@problem(
    "tpus",
    "A matrix that does not fill the MXU",
    cases=("tpus.mxu_padding:utilization",),
    rows=(64, 100, 200, 96, 40, 320),
    columns=(128, 100, 300, 64, 192),
    side=(128, 256),
)
def mxu_padding(rows: int, columns: int, side: int) -> Posed | None:
    shape, useful = padded((rows, columns), (side, side))
    answer = float(useful)
    if answer > 0.93:
        return None
    traps = [Trap(1.0, f"The array works on whole blocks of {side} x {side}; what is missing is padded with zeros.")]
    if rows * columns < side * side and shape != (side, side):
        traps.append(Trap(rows * columns / (side * side), "The larger side takes more than one block."))
    elif rows % side and columns % side:
        traps.append(Trap(rows / float(shape[0]), "Both sides are padded."))
    return Posed(
        ask=f"A weight matrix of {rows} x {columns} is multiplied on an MXU of {side} x {side}, so both sides are padded up "
        f"to a multiple of {side}. Which part of the multiplications is useful (as a number between 0 and 1)?",
        answer=answer,
        hints=("Round both sides up, then compare the areas.", "useful = rows·columns / (padded rows·padded columns)."),
        steps=(
            f"padded to {shape[0]} x {shape[1]}",
            f"{rows}·{columns} / ({shape[0]}·{shape[1]}) = {number(answer)}",
        ),
        traps=tuple(traps),
        check=f'dscale calc "{rows}*{columns} / (ceil({rows}/{side})*{side} * ceil({columns}/{side})*{side})"',
    )


@problem(
    "tpus",
    "FLOP/s of a vector unit",
    cases=("tpus.vpu_flops:per_core",),
    alus=(4, 2, 8),
    clock=(1.75e9, 0.94e9, 1.05e9, 1.5e9, 2e9),
)
def vector_rate(alus: int, clock: float) -> Posed:
    answer = 8 * 128 * alus * clock
    return Posed(
        ask=f"The vector unit (VPU) of a TPU core has 8 sublanes of 128 lanes, with {alus} ALUs in each, at "
        f"{amount(clock, 'Hz')}. Every ALU does one fp32 operation a cycle. How many FLOP/s does the core's VPU do?",
        answer=answer,
        dimension="FLOP/s",
        hints=("Count the ALUs first.", "FLOP/s = 8 · 128 · ALUs · clock."),
        steps=(f"8·128·{alus} = {count(8 * 128 * alus)} ALUs", f"· {number(clock)} = {amount(answer, 'FLOP/s')}"),
        traps=(
            Trap(2 * answer, "Here an ALU does one operation a cycle, not a fused multiply-add."),
            Trap(answer / alus, f"There are {alus} ALUs in every lane."),
        ),
        check=f'dscale calc "8 * 128 * {alus} FLOP * {amount(clock, "Hz")}"',
    )


@problem(
    "tpus",
    "Matrix against vector",
    cases=("tpus.mxu_to_vpu_ratio:ratio",),
    chip=("v5p", "v5e", "v4", "v3", "v6e", "tpu7x", "h100", "a100", "b200"),
)
def matrix_against_vector(chip: str) -> Posed:
    made = load_chip(chip)
    matrix, vector = float(made.peak("bf16")), float(made.peak("fp32", "vector"))
    answer = matrix / vector
    return Posed(
        ask=f"A {made.title} multiplies matrices at {amount(matrix, 'FLOP/s')} (bf16) and does {amount(vector, 'FLOP/s')} of "
        "fp32 on its vector units, both of the whole chip. How many times faster are the matrix units?",
        answer=answer,
        hints=("Both figures are of the whole chip.", "ratio = matrix FLOP/s / vector FLOP/s."),
        steps=(f"{number(matrix)} / {number(vector)}", f"= {number(answer)}"),
        traps=(
            Trap(2 * answer, "One core's vector unit was set against the whole chip."),
            Trap(1 / answer, "Upside down."),
        ),
        check=f'dscale calc "{chip}.bf16 / {chip}.vector.fp32"',
    )


@problem(
    "tpus",
    "A sum across sublanes",
    cases=("tpus.sublane_reduction_steps:steps",),
    width=(8, 4, 16, 32, 64, 128, 256, 512, 1024),
)
def reduction_steps(width: int) -> Posed:
    shifts = reduction_shifts(width)
    return Posed(
        ask=f"{width} sublanes each hold a number, and all should end with the sum of all {width}. In one step every sublane "
        "adds a copy of the register rotated by any amount. How few steps suffice?",
        answer=float(len(shifts)),
        whole=True,
        hints=(
            "Rotate by half first: then every sum stands twice.",
            "log2(width) steps, rotations of width/2, …, 2, 1.",
        ),
        steps=(f"rotate by {', '.join(map(str, shifts))}, adding each time", f"{len(shifts)} steps"),
        traps=(
            Trap(float(width - 1), "Adding one at a time is far more than is needed."),
            Trap(width / 2, "Each step halves what is left to add."),
        ),
        check=f'dscale calc "log2({width})"',
    )


@problem(
    "tpus",
    "Tiles in memory",
    rows=(100, 1, 30, 513, 7, 260),
    columns=(200, 64, 1000, 130, 100, 4100),
    dtype=("bf16", "f32", "s8"),
)
def tile_padding(rows: int, columns: int, dtype: str) -> Posed | None:
    inner = {"bf16": "(2,1)", "f32": "", "s8": "(4,1)"}[dtype]
    each = {"bf16": 2, "f32": 4, "s8": 1}[dtype]
    layout = f"{dtype}[{rows},{columns}]{{1,0:T(8,128){inner}}}"
    answer, plain = float(padded_bytes(layout)), float(each * rows * columns)
    down, across = -(-rows // 8) * 8, -(-columns // 128) * 128
    traps = [Trap(plain, "Rows are rounded up to a multiple of 8, columns to one of 128.")]
    if down != rows and across != columns:
        traps.append(Trap(float(each * rows * across), "Rows are rounded up too."))
    return Posed(
        ask=f"XLA lays {layout} out in HBM in tiles of 8 x 128: what does not fill a tile is padding. How many bytes does "
        f"it take there? ({dtype} takes {some(each, 'byte')} an element; what follows T(8,128) only reorders inside a tile.)",
        answer=answer,
        dimension="bytes",
        hints=("Round both dims up to whole tiles.", "bytes · ceil(rows/8)·8 · ceil(columns/128)·128."),
        steps=(
            f"padded to {down} x {across}",
            f"{each} · {down} · {across} = {count(answer)} bytes, {amount(answer, 'bytes')}",
        ),
        traps=tuple(traps),
        tolerance=0.005,
        check=f'dscale calc "{each} bytes * ceil({rows}/8)*8 * ceil({columns}/128)*128"',
    )
