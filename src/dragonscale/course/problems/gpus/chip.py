"""What a GPU computes with: SMs, Tensor Cores, CUDA Cores and their clocks."""

import math

from dragonscale.course.closed_forms.chip_parts import (
    WARP,
    cores_filled,
    implied_clock,
    matrix_flops_per_cycle,
    resident_warps,
    vector_flops,
)
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.commands import calc
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.parts import alus, cores, matrix_units

GPUS = ("h100", "b200", "a100", "v100", "gb200", "l40s", "b300", "rtx4090", "rtx5090")


@problem("gpus", "The ALUs of a GPU", cases=("gpus.q1_1_alus:H100",), chip=GPUS)
def fp32_alus(chip: str) -> Posed:
    gpu = load_chip(chip)
    sms, each = cores(gpu), alus(gpu) // cores(gpu)
    quarter = each // 4
    return Posed(
        ask=f"An {gpu.title} has {sms} SMs of four subpartitions, each with {quarter} CUDA Cores (fp32 ALUs). "
        "How many fp32 ALUs does it have in all?",
        answer=alus(gpu),
        whole=True,
        hints=("Count one SM first.", "ALUs = SMs · subpartitions of an SM · CUDA Cores of a subpartition"),
        steps=(f"An SM has 4 · {quarter} = {each} ALUs.", f"{sms} · {each} = {count(alus(gpu))}"),
        traps=(
            Trap(sms * quarter, "That is one subpartition of each SM; there are four."),
            Trap(matrix_units(gpu), "Those are its Tensor Cores."),
        ),
        check=f'dscale chips {chip} | grep "^parts"',
    )


@problem(
    "gpus",
    "What a Tensor Core does in a cycle",
    cases=("gpus.tensor_core_flops_per_cycle_h100:flops_per_cycle",),
    chip=("h100", "b200", "a100", "v100", "l40s"),
    clock=(1.76e9, 1.4e9, 1.53e9, 1.6e9, 1.83e9, 1.86e9, 2.0e9),
)
def tensor_core_flops_per_cycle(chip: str, clock: float) -> Posed:
    gpu = load_chip(chip)
    dtype = "bf16" if "bf16" in gpu.matrix else "fp16"
    peak, units, answer = gpu.peak(dtype), matrix_units(gpu), matrix_flops_per_cycle(gpu, dtype, clock)
    each = units // cores(gpu)
    power = 2 ** round(math.log2(answer))
    closing = (f"Near {power:,}: a Tensor Core does a small matmul of fixed size each cycle.",)
    return Posed(
        ask=f"An {gpu.title} has {cores(gpu)} SMs with {each} Tensor Cores each and a peak of {amount(peak, 'FLOP/s')} "
        f"in {dtype}. If they run at {amount(clock, 'Hz')}, how many {dtype} FLOPs does one Tensor Core do in a cycle?",
        answer=answer,
        hints=(
            "The peak rate is all Tensor Cores, every cycle.",
            "FLOPs per cycle = peak / (SMs · Tensor Cores of an SM · clock)",
        ),
        steps=(
            f"{cores(gpu)} SMs · {each} = {units} Tensor Cores",
            f"{number(peak)} / ({units} · {number(clock)}) = {number(answer)}",
            *(closing if abs(answer / power - 1) < 0.06 else ()),
        ),
        traps=(
            Trap(answer * each, "That is a whole SM; it has several Tensor Cores."),
            Trap(answer / 2, "Those are multiply-adds; each is two FLOPs."),
        ),
        check=calc(f"{amount(peak, 'FLOP/s')} / ({units} * {amount(clock, 'Hz')})"),
        tolerance=0.02,
    )


@problem(
    "gpus",
    "Vector units against Tensor Cores",
    cases=("gpus.q1_2_vector_flops:base",),
    chip=("h100", "b200", "a100", "l40s"),
    clock=(1.59e9, 1.2e9, 1.41e9, 1.755e9, 1.83e9, 1.98e9, 2.1e9),
)
def vector_rate(chip: str, clock: float) -> Posed:
    gpu = load_chip(chip)
    answer = vector_flops(gpu, clock)
    return Posed(
        ask=f"An {gpu.title} has {count(alus(gpu))} fp32 ALUs. At {amount(clock, 'Hz')}, how many FLOP/s do they do with "
        "one operation (an add, say, not a fused multiply-add) a cycle?",
        answer=answer,
        dimension="FLOP/s",
        hints=("Each ALU does one operation a cycle.", "FLOP/s = ALUs · clock"),
        steps=(
            f"{count(alus(gpu))} · {number(clock)} /s = {amount(answer, 'FLOP/s')}",
            f"Its Tensor Cores do {amount(gpu.peak('bf16'), 'FLOP/s')} in bf16, {number(gpu.peak('bf16') / answer, 3)} "
            "times as much.",
        ),
        traps=(
            Trap(2 * answer, "Twice as much counts a fused multiply-add as two; here each ALU does one operation."),
            Trap(answer / 4, "That is one subpartition of each SM, a quarter of its ALUs."),
        ),
        check=calc(f"{alus(gpu)} FLOP * {amount(clock, 'Hz')}"),
    )


@problem(
    "gpus",
    "A clock read off a datasheet",
    cases=("gpus.q1_6_b200_clock:clock",),
    chip=("b200", "h100", "a100", "gb200"),
    rate=(80e12, 19.5e12, 40e12, 60e12, 67e12, 72e12),
)
def clock_behind_a_rate(chip: str, rate: float) -> Posed | None:
    gpu = load_chip(chip)
    answer = implied_clock(gpu, rate)
    if not 0.8e9 < answer < 3e9:
        return None
    return Posed(
        ask=f"A datasheet gives {amount(rate, 'FLOP/s')} of fp32 vector work, counting a fused multiply-add as two, for a "
        f"GPU with {count(alus(gpu))} fp32 ALUs. At which clock is that?",
        answer=answer,
        dimension="Hz",
        hints=("What do all ALUs do in one cycle?", "clock = rate / (2 · ALUs)"),
        steps=(
            f"In a cycle: 2 · {count(alus(gpu))} = {count(2 * alus(gpu))} FLOPs",
            f"{number(rate)} / {count(2 * alus(gpu))} = {amount(answer, 'Hz')}",
        ),
        traps=(Trap(2 * answer, "A fused multiply-add is two FLOPs in one cycle."),),
        check=calc(f"{amount(rate, 'FLOP/s')} / (2 FLOP * {alus(gpu)})") + " --to GHz",
    )


@problem(
    "gpus",
    "How many warps an SM can hold",
    cases=("gpus.register_file:warps",),
    chip=("h100", "a100", "b200"),
    registers=(256, 32, 40, 64, 80, 96, 128, 160, 192, 224),
)
def warps_that_fit(chip: str, registers: int) -> Posed | None:
    gpu = load_chip(chip)
    words = int(gpu.structure["registers_per_sm"])
    most = int(gpu.structure["warps_per_sm"])
    answer = int(resident_warps(gpu, registers))
    if answer == most:
        return None
    return Posed(
        ask=f"An SM of an {gpu.title} has {count(words)} registers of 32 bits, dealt out to threads, of which {WARP} make a "
        f"warp. A kernel uses {registers} registers for each thread. How many whole warps fit on the SM at once (it can "
        f"hold {most} at most)?",
        answer=answer,
        whole=True,
        hints=(
            "How many registers does one warp take?",
            "warps = floor(registers of the SM / (32 · registers of a thread))",
        ),
        steps=(
            f"A warp takes {WARP} · {registers} = {count(WARP * registers)} registers.",
            f"floor({count(words)} / {count(WARP * registers)}) = {answer}",
        ),
        traps=(
            Trap(words // registers, "Those are threads; 32 of them make a warp."),
            Trap(
                words * 4 // (WARP * registers), "The register file is counted in words of 32 bits here, not in bytes."
            ),
        ),
        check=calc(f"floor(resident_warps({chip}, {registers}))"),
    )


@problem(
    "gpus",
    "A kernel too small for the GPU",
    cases=("gpus.q1_7_partial_occupancy:slowdown",),
    chip=("h100", "b200", "a100"),
    elements=(1024, 256, 384, 512, 768, 1280, 1536, 2048, 4096, 6144),
)
def idle_sms(chip: str, elements: int) -> Posed:
    gpu = load_chip(chip)
    each = alus(gpu) // cores(gpu)
    busy = cores_filled(gpu, elements)
    answer = cores(gpu) / busy
    return Posed(
        ask=f"Two fp32 vectors of {count(elements)} elements are added on an {gpu.title}, one thread for each element, so "
        f"that every SM with work has one element for each of its {each} ALUs. The GPU has {cores(gpu)} SMs. By which factor "
        "is its peak of vector FLOP/s out of reach?",
        answer=answer,
        hints=("How many SMs have anything to do?", "factor = SMs / ceil(elements / ALUs of an SM)"),
        steps=(
            f"{count(elements)} / {each} = {count(busy)} SMs have work.",
            f"{cores(gpu)} / {count(busy)} = {number(answer)}",
        ),
        traps=(
            Trap(cores(gpu) / (elements / WARP), "32 threads are a warp, and an SM has ALUs for more than one."),
            Trap(busy, "Those are the SMs that work; the question is how many times more there are."),
        ),
        check=calc(f"{cores(gpu)} / cores_filled({chip}, {elements})"),
    )
