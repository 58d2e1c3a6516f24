"""What a GPU computes from: HBM, L2, shared memory and registers."""

from dragonscale.course.closed_forms.costs import pointwise_cost
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.chips import book_chip
from dragonscale.course.problems.commands import calc
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.hardware.parts import cores
from dragonscale.physics.hardware.slices import chips_to_hold
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.rooflines import einsum_cost, rates_of, roofline

KIB = 1024


@problem(
    "gpus",
    "On-chip memory of a whole GPU",
    cases=("gpus.onchip_memory_table:h100_smem",),
    chip=("h100", "b200", "a100", "v100", "l40s", "gb200", "rtx4090", "rtx5090"),
    what=("smem", "registers"),
)
def on_chip_memory(chip: str, what: str) -> Posed | None:
    gpu = load_chip(chip)
    field = {"smem": "smem_per_sm", "registers": "register_bytes_per_sm"}[what]
    if what not in gpu.memory or field not in gpu.structure:
        return None
    each, answer = gpu.structure[field], gpu.memory[what].capacity
    name = {"smem": "L1 and shared memory (SMEM)", "registers": "registers"}[what]
    return Posed(
        ask=f"Each of the {cores(gpu)} SMs of an {gpu.title} has {number(each / KIB)} KiB of {name}. How many bytes is that "
        "on the whole GPU?",
        answer=answer,
        dimension="bytes",
        hints=("Every SM has its own.", "bytes = SMs · bytes of an SM"),
        steps=(
            f"{number(each / KIB)} KiB = {count(each)} bytes",
            f"{cores(gpu)} · {count(each)} = {amount(answer, 'bytes')}; a TPU v5p has 128 MiB of VMEM",
        ),
        traps=(
            Trap(answer * 4, "The four subpartitions share what an SM has; it is not four times as much."),
            Trap(each, "That is one SM."),
        ),
        check=calc(f"{cores(gpu)} * {each / KIB:g} KiB"),
        tolerance=0.03,
    )


@problem(
    "gpus",
    "Where HBM stops binding",
    cases=("gpus.q1_3_intensity:h100_fp16",),
    chip=("h100", "b200", "h200", "a100", "gb200", "mi300x", "l40s"),
    dtype=("fp16", "fp8", "bf16", "int8"),
)
def critical_intensity(chip: str, dtype: str) -> Posed | None:
    gpu = load_chip(chip)
    if dtype not in gpu.matrix:
        return None
    answer = gpu.intensity(dtype)
    peak, width = gpu.peak(dtype), gpu.bandwidth("hbm")
    return Posed(
        ask=f"An {gpu.title} multiplies {amount(peak, 'FLOP/s')} in {dtype} and reads {amount(width, 'bytes/s')} from HBM. "
        "How many FLOPs must an operation do for each byte so that compute binds?",
        answer=answer,
        hints=("Set the time to compute equal to the time to read.", "intensity = peak / bandwidth"),
        steps=(
            "FLOPs / peak = bytes / bandwidth, so FLOPs / bytes = peak / bandwidth",
            f"{number(peak)} / {number(width)} = {number(answer)} FLOPs a byte",
        ),
        traps=(
            Trap(1 / answer, "That is bytes a FLOP; the question is FLOPs a byte."),
            Trap(2 * answer, "The peak counts FLOPs already, and bytes are bytes: no further factor of two."),
        ),
        check=calc(f"{chip}.{dtype} / {chip}.hbm_bandwidth"),
        tolerance=0.01,
    )


@problem(
    "gpus",
    "A matmul at best on a GPU",
    cases=("gpus.q1_4_small_matmul:t",),
    chip=("b200", "h100", "h200", "a100"),
    batch=(64, 16, 32, 128, 512, 1024, 2048),
    d=(4096, 5120, 8192),
    f=(8192, 14336, 28672),
)
def matmul_time(chip: str, batch: int, d: int, f: int) -> Posed | None:
    gpu = book_chip(chip)
    line = parse_einsum(f"bf16[B={batch}, D={d}] @ bf16[D, F={f}]")
    found = roofline(einsum_cost(line), rates_of(gpu))
    peak, width = gpu.peak("bf16"), gpu.bandwidth("hbm")
    flops, moved = 2 * batch * d * f, found.cost.bytes["hbm"]
    compute, memory = flops / peak, moved / width
    return Posed(
        ask=f"bf16[{batch}, {d}] is multiplied by bf16[{d}, {f}] on a GPU with {amount(peak, 'FLOP/s')} in bf16 and "
        f"{amount(width, 'bytes/s')} of HBM. Both operands are read, the bf16 result is written, and all of it overlaps with "
        "compute. How long does it take at best?",
        answer=found.lower,
        dimension="s",
        hints=(
            "Work out both times; the larger one binds.",
            "max(2·B·D·F / C, 2·(B·D + D·F + B·F) / W)",
        ),
        steps=(
            f"compute: 2·{batch}·{d}·{f} / {number(peak)} = {amount(compute, 's')}",
            f"memory: {amount(moved, 'bytes')} / {amount(width, 'bytes/s')} = {amount(memory, 's')}",
            f"The larger, {'compute' if compute > memory else 'memory'}, binds: {amount(found.lower, 's')}",
        ),
        traps=(
            Trap(min(compute, memory), "That is the smaller of the two times; the larger one binds."),
            Trap(compute + memory, "That adds the two; they overlap."),
        ),
        check=calc(
            f"max({amount(flops, 'FLOP', 6)} / {amount(peak, 'FLOP/s')}, {moved:g} bytes / {amount(width, 'bytes/s')})"
        ),
    )


@problem(
    "gpus",
    "The intensity of adding vectors",
    cases=("gpus.q1_7_add_intensity:intensity",),
    arrays=(2, 3, 4, 5, 6, 8),
    dtype=("fp32", "bf16", "fp8"),
)
def adding_vectors(arrays: int, dtype: str) -> Posed:
    cost = pointwise_cost(1.0, reads=arrays, writes=1, flops=arrays - 1, dtype=dtype)
    answer, size = cost.intensity(), dtype_bytes(dtype)
    return Posed(
        ask=f"{arrays} vectors {dtype}[N] are read from HBM, added element by element in one kernel, and the sum is written "
        f"back in {dtype}. How many FLOPs is that for each byte moved?",
        answer=answer,
        hints=(
            "Count additions and bytes for one element.",
            "intensity = (arrays − 1) / (bytes of an element · (arrays + 1))",
        ),
        steps=(
            f"{arrays - 1} addition{'s' if arrays > 2 else ''} for each element",
            f"{arrays} reads and one write: {number((arrays + 1) * size)} bytes",
            f"{arrays - 1} / {number((arrays + 1) * size)} = {number(answer)}",
        ),
        traps=(
            Trap((arrays - 1) / (arrays * size), "The result must be written too."),
            Trap(arrays / ((arrays + 1) * size), "Adding so many numbers takes one addition less."),
        ),
        check=calc(f"{arrays - 1} / (({arrays} + 1) * {size:g})"),
        tolerance=0.01,
    )


@problem(
    "gpus",
    "GPUs that hold a training state",
    cases=("gpus.q5_2a_memory:gpus",),
    chip=("h100", "h200", "b200", "a100", "mi300x"),
    billions=(70, 8, 13, 34, 120, 180, 235, 405),
    each=(10, 12, 16, 18),
)
def gpus_for_the_state(chip: str, billions: int, each: int) -> Posed | None:
    gpu = load_chip(chip)
    state = billions * 1e9 * each
    answer = chips_to_hold(gpu, state)
    if answer < 3:
        return None
    parts = {10: "bf16 weights, two fp32 moments", 12: "bf16 weights and gradients, two fp32 moments"}
    parts |= {16: "bf16 weights and gradients, fp32 master copy and moments", 18: "the same with fp32 gradients"}
    return Posed(
        ask=f"A model of {billions}B parameters is trained with {each} bytes of state a parameter ({parts[each]}), spread "
        f"evenly over GPUs of {amount(gpu.hbm.capacity, 'bytes')}. How many GPUs does the state alone need at least?",
        answer=answer,
        whole=True,
        hints=("Bytes of state first.", "GPUs = ceil(parameters · bytes / HBM)"),
        steps=(
            f"{billions}e9 · {each} = {amount(state, 'bytes')}",
            f"ceil({number(state)} / {number(gpu.hbm.capacity)}) = {answer}",
        ),
        traps=(
            Trap(
                chips_to_hold(gpu, 2e9 * billions), "That holds the bf16 weights alone, without the optimizer's state."
            ),
        ),
        check=calc(f"ceil({billions}e9 * {each} bytes / {amount(gpu.hbm.capacity, 'bytes')})"),
    )
