"""The work of an instruction: FLOPs, bytes, intensity, the bound on a chip."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.evidence.xla.op_bounds import op_bound
from dragonscale.evidence.xla.op_work import work_of_text
from dragonscale.physics.hardware import load_chip

CHIPS = ("v5e", "v5p", "v6e", "h100", "h200")


def _dot(m: int, k: int, n: int, dtype: str = "bf16") -> str:
    return (
        f"%dot = {dtype}[{m},{n}] dot({dtype}[{m},{k}] %x, {dtype}[{k},{n}] %w), "
        f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )


@problem(
    "profiling",
    "FLOPs of a dot",
    cases=("profiling.hlo_dot_flops:flops",),
    dtype=("f32", "bf16"),
    summed=(256, 512, 4096, 8192),
    left=(16, 64, 1024),
    right=(128, 2048, 28672),
)
def flops_of_a_dot(dtype: str, summed: int, left: int, right: int) -> Posed:
    text = (
        f"%dot = {dtype}[{left},{right}] dot({dtype}[{summed},{left}] %y, "
        f"{dtype}[{right},{summed}] %x), lhs_contracting_dims={{0}}, "
        f"rhs_contracting_dims={{1}}"
    )
    work = work_of_text(text)
    return Posed(
        ask=f"How many FLOPs does `{text}` take?",
        answer=work.matmul_flops,
        dimension="FLOP",
        hints=(
            "The contracting dims are summed; the others stay.",
            "FLOPs = 2 · summed · (kept of the left) · (kept of the right)",
        ),
        steps=(
            f"summed: dim 0 of the left and dim 1 of the right, {summed}",
            f"2 · {summed} · {left} · {right} = {count(work.matmul_flops)}",
        ),
        traps=(
            Trap(work.matmul_flops / 2, "A multiply-add is two FLOPs."),
            Trap(work.matmul_flops * summed, "The summed dim counts once: it is the same index on both sides."),
            Trap(2.0 * left * right, "Each element of the result is a sum over the contracting dim."),
        ),
        check=f'dscale hlo "{text}" | grep "matmul FLOPs"',
    )


@problem(
    "profiling",
    "FLOPs of a fusion seen from outside",
    cases=("profiling.q_projection_time:flops",),
    batch=(8, 4, 16),
    length=(1024, 2048, 512),
    width=(8192, 4096),
    heads=(8, 16, 32),
    head=(256, 128),
)
def flops_of_a_fusion(batch: int, length: int, width: int, heads: int, head: int) -> Posed:
    text = _projection(batch, length, width, heads, head)
    work = work_of_text(text)
    tokens = batch * length
    return Posed(
        ask=f"A profile shows `{text}`. It is a matmul. How many FLOPs does it take?",
        answer=work.matmul_flops,
        dimension="FLOP",
        hints=("Which size do both operands have and the result not?", "2 · tokens · summed · kept of the weights"),
        steps=(
            f"summed: {width}; kept: {batch} · {length} tokens, {heads} · {head} of the weights",
            f"2 · {tokens} · {width} · {heads * head} = {amount(work.matmul_flops, 'FLOP')}",
        ),
        traps=(
            Trap(work.matmul_flops / 2, "A multiply-add is two FLOPs."),
            Trap(work.matmul_flops / batch, f"All {batch} sequences are multiplied."),
        ),
        check=f'dscale hlo "{text}" | grep "matmul"',
    )


def _projection(batch: int, length: int, width: int, heads: int, head: int) -> str:
    return (
        f"%fusion.169 = bf16[{batch},{length},{heads},{head}] fusion(bf16[{batch},{length},{width}] %x, "
        f"bf16[{width},{heads},{head}] %w), kind=kOutput, calls=%fused"
    )


@problem(
    "profiling",
    "Expected time of a matmul, and how much of the peak it reached",
    cases=("profiling.q_projection_time:utilisation",),
    peak=(23e12, 197e12, 459e12, 989.5e12),
    batch=(8, 4, 16),
    length=(1024, 2048),
    width=(8192, 4096),
    slower=(1.16164, 1.3, 1.6, 2.2, 3.5),
)
def fraction_of_the_peak(peak: float, batch: int, length: int, width: int, slower: float) -> Posed:
    work = work_of_text(_projection(batch, length, width, 8, 256))
    expected = work.matmul_flops / peak
    measured = float(f"{expected * slower:.5g}")
    fraction = expected / measured
    return Posed(
        ask=f"A profile shows that bf16[{batch},{length},{width}] times bf16[{width},8,256] "
        f"took {amount(measured, 's', 5)} on a device with {amount(peak, 'FLOP/s')}. Which "
        "part of the peak did it reach? (A fraction or percent.)",
        answer=fraction,
        hints=(
            "First the FLOPs, then the time at the peak.",
            "fraction = 2 · tokens · D · (heads · H) / C / measured time",
        ),
        steps=(
            f"{amount(work.matmul_flops, 'FLOP')} / {amount(peak, 'FLOP/s')} = {amount(expected, 's')}",
            f"{amount(expected, 's')} / {amount(measured, 's', 5)} = {number(fraction)}",
        ),
        traps=(
            Trap(fraction / 2, "A multiply-add is two FLOPs."),
            Trap(1 / fraction, "That is how much longer it took; the fraction is the other way round."),
        ),
        check=f'dscale calc "2*{batch}*{length}*{width}*8*256 FLOP / {amount(peak, "FLOP/s")} / '
        f'{amount(measured, "s", 5)}"',
    )


@problem(
    "profiling",
    "Bytes that an op reads and writes",
    cases=("profiling.q1_profiler_fields:bytes_accessed",),
    rows=(4096, 1024, 8192, 28672),
    summed=(8192, 4096, 16384),
    columns=(1, 16, 256),
    dtype=("bf16", "s8", "f32"),
)
def bytes_of_an_op(rows: int, summed: int, columns: int, dtype: str) -> Posed:
    work = work_of_text(_dot(rows, summed, columns, dtype))
    size = {"bf16": 2, "s8": 1, "f32": 4}[dtype]
    return Posed(
        ask=f"How many bytes of HBM does {dtype}[{rows},{summed}] · {dtype}[{summed},{columns}] "
        f"-> {dtype}[{rows},{columns}] read and write at least, if every operand is read "
        "once?",
        answer=work.hbm_bytes,
        dimension="bytes",
        hints=("Both operands are read, the result is written.", "bytes = (m·k + k·n + m·n) · bytes of an element"),
        steps=(
            (f"{rows}·{summed} + {summed}·{columns} + {rows}·{columns} = {count(work.hbm_bytes / size)} elements"),
            f"· {size} bytes = {count(work.hbm_bytes)} bytes = {amount(work.hbm_bytes, 'bytes')}",
        ),
        traps=(Trap(2 * work.hbm_bytes, "An element of s8 has one byte."),)
        if size == 1
        else (Trap(work.hbm_bytes / size, f"An element of {dtype} has {size} bytes."),),
        check=f'dscale calc "({rows}*{summed} + {summed}*{columns} + {rows}*{columns}) * {size} bytes"',
    )


@problem(
    "profiling",
    "What bounds an op",
    m=(1, 16, 64, 512, 4096, 8192),
    k=(8192, 4096, 16384),
    n=(28672, 8192, 4096),
    chip=CHIPS,
)
def bound_of_an_op(m: int, k: int, n: int, chip: str) -> Posed | None:
    text = _dot(m, k, n)
    work, known = work_of_text(text), load_chip(chip)
    bound = op_bound(work, known)
    times = sorted(bound.parts.values())
    if times[-1] < 1.15 * times[-2]:
        return None
    parts = [f"{name}: {amount(seconds, 's')}" for name, seconds in bound.parts.items()]
    return Posed(
        ask=f"bf16[{m},{k}] · bf16[{k},{n}] on {chip}, {amount(known.peak('bf16'), 'FLOP/s')} "
        f"and {amount(known.bandwidth('hbm'), 'bytes/s')} of HBM: is its shortest time that of "
        "compute or of HBM?",
        answer=bound.by,
        hints=(
            "Compare the FLOPs over the peak with the bytes over the bandwidth.",
            "2·m·k·n / C against 2·(m·k + k·n + m·n) / W",
        ),
        steps=tuple(parts) if len(parts) > 1 else (*parts, f"bound by {bound.by}"),
        check=f'dscale hlo "{text}" --on {chip} | grep "at best"',
        options=("compute", "HBM"),
    )


@problem(
    "profiling",
    "The shortest time of an op",
    m=(8, 64, 1024, 8192),
    k=(8192, 4096),
    n=(28672, 8192, 16384),
    chip=CHIPS,
)
def shortest_time_of_an_op(m: int, k: int, n: int, chip: str) -> Posed:
    text = _dot(m, k, n)
    work, known = work_of_text(text), load_chip(chip)
    bound = op_bound(work, known)
    other = min(bound.parts.values())
    return Posed(
        ask=f"What is the shortest time of bf16[{m},{k}] · bf16[{k},{n}] -> bf16[{m},{n}] on "
        f"{chip}, {amount(known.peak('bf16'), 'FLOP/s')} and "
        f"{amount(known.bandwidth('hbm'), 'bytes/s')} of HBM, operands read from HBM once and "
        "the result written?",
        answer=bound.seconds,
        dimension="s",
        hints=("The busiest resource decides.", "max(2·m·k·n / C, 2·(m·k + k·n + m·n) / W)"),
        steps=(
            f"compute: {amount(work.matmul_flops, 'FLOP')} takes {amount(bound.parts['compute'], 's')}",
            f"HBM: {amount(work.hbm_bytes, 'bytes')} take {amount(bound.parts['HBM'], 's')}",
            f"the larger: {amount(bound.seconds, 's')}",
        ),
        traps=(
            Trap(other, "Both must be done: the larger of the two times counts."),
            Trap(bound.seconds / 2, "Two FLOPs for a multiply-add; two bytes for bf16."),
        ),
        check=f'dscale hlo "{text}" --on {chip} | grep "at best"',
    )
