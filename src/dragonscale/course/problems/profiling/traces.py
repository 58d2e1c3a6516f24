"""What a trace says: achieved rates, fractions of a roof, parts of a step."""

from dragonscale.course.closed_forms import utilisation
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.evidence.xla.op_work import work_of_text
from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines import Cost, Rates, roofline

KINDS = {"all-gather": "all_gather", "all-reduce": "all_reduce", "reduce-scatter": "reduce_scatter"}


@problem(
    "profiling",
    "Bandwidth that an op achieved",
    cases=("profiling.q1_profiler_fields:achieved_bw",),
    rows=(4096, 8192, 16384),
    summed=(8192, 4096, 28672),
    rate=(320.8641e9, 600e9, 700e9, 1.2e12, 2.1e12),
)
def achieved_bandwidth(rows: int, summed: int, rate: float) -> Posed:
    text = (
        f"%f = bf16[{rows}] dot(bf16[{rows},{summed}] %w, bf16[{summed}] %x), "
        f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    moved = work_of_text(text).hbm_bytes
    seconds = float(f"{moved / rate:.6g}")
    return Posed(
        ask=f"A trace shows bf16[{rows},{summed}] times bf16[{summed}] taking "
        f"{amount(seconds, 's', 6)}. Which bandwidth of HBM did it achieve?",
        answer=moved / seconds,
        dimension="bytes/s",
        hints=(
            "A matrix times a vector reads the matrix once; everything else is small.",
            "bandwidth = 2 · (m·k + k + m) bytes / time",
        ),
        steps=(
            f"2 · ({rows}·{summed} + {summed} + {rows}) = {count(moved)} bytes",
            f"/ {amount(seconds, 's', 6)} = {amount(moved / seconds, 'bytes/s')}",
        ),
        traps=(Trap(moved / seconds / 2, "bf16 has two bytes."), Trap(2 * moved / seconds, "The matrix is read once.")),
        check=f'dscale calc "2 bytes * ({rows}*{summed} + {summed} + {rows}) / {amount(seconds, "s", 6)}"',
    )


@problem(
    "profiling",
    "How far from its roof",
    chip=("v5e", "h100", "v5p", "h200", "v6e"),
    m=(16, 64, 4096, 8192),
    n=(8192, 28672, 16384),
    slower=(1.25, 1.5, 2.0, 3.0),
)
def far_from_its_roof(chip: str, m: int, n: int, slower: float) -> Posed:
    known = load_chip(chip)
    work = work_of_text(
        f"%d = bf16[{m},{n}] dot(bf16[{m},8192] %x, bf16[8192,{n}] %w), "
        f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    rates = Rates(flops={("matrix", "bf16"): known.peak("bf16")}, bytes={"hbm": known.bandwidth("hbm")})
    bounds = roofline(Cost(flops={("matrix", "bf16"): work.matmul_flops}, bytes={"hbm": work.hbm_bytes}), rates)
    math, memory = bounds.seconds["matrix"], bounds.seconds["hbm"]
    measured = float(f"{slower * bounds.lower:.4g}")
    return Posed(
        ask=f"A trace on {chip} ({amount(known.peak('bf16'), 'FLOP/s')}, "
        f"{amount(known.bandwidth('hbm'), 'bytes/s')} of HBM) shows bf16[{m},8192] · "
        f"bf16[8192,{n}] taking {amount(measured, 's')}. Which part of its roofline did it "
        "reach? (A fraction or percent.)",
        answer=bounds.lower / measured,
        hints=(
            "First what the op could take at best: the larger of compute and HBM.",
            "of roof = max(FLOPs / C, bytes / W) / measured",
        ),
        steps=(
            f"compute {amount(math, 's')}, HBM {amount(memory, 's')}: at best {amount(bounds.lower, 's')}",
            f"{amount(bounds.lower, 's')} / {amount(measured, 's')} = {number(bounds.lower / measured)}",
        ),
        traps=(
            Trap(min(math, memory) / measured, "The roof is the larger of the two times, the resource that binds."),
            Trap(measured / bounds.lower, "That is how much longer it took."),
        ),
        check=f'dscale calc "max(2*{m}*8192*{n} FLOP / {chip}.bf16, 2 bytes * ({m}*8192 + '
        f'8192*{n} + {m}*{n}) / {chip}.hbm_bandwidth) / {amount(measured, "s")}"',
    )


@problem(
    "profiling",
    "A collective's bandwidth in a trace",
    kind=tuple(KINDS),
    rows=(8192, 4096, 16384),
    columns=(2048, 8192, 4096),
    devices=(8, 4, 16),
    rate=(150e9, 70e9, 320e9, 40e9),
)
def bandwidth_of_a_collective(kind: str, rows: int, columns: int, devices: int, rate: float) -> Posed:
    volume = 2.0 * rows * columns
    sent = wire_bytes(KINDS[kind], volume, devices)
    seconds = float(f"{sent / rate:.4g}")
    gathers = kind == "all-gather"
    article = "a" if kind == "reduce-scatter" else "an"
    shape = f"bf16[{rows},{columns}]"
    whole = f"whose result is {shape}" if gathers else f"whose operand is {shape}"
    times = "2 · " if kind == "all-reduce" else ""
    return Posed(
        ask=f"A trace shows {article} {kind} in groups of {devices}, {whole} on each device, "
        f"taking {amount(seconds, 's')}. At which rate did each device send? Count exactly, "
        f"(N-1)/N of the array{' twice' if times else ''}.",
        answer=sent / seconds,
        dimension="bytes/s",
        hints=("HLO prints shapes as one device has them.", f"bytes sent = {times}V · (N−1)/N; over the time"),
        steps=(
            f"V = 2 · {rows} · {columns} = {amount(volume, 'bytes')}",
            f"sent: {times}V · {devices - 1}/{devices} = {amount(sent, 'bytes')}",
            f"/ {amount(seconds, 's')} = {amount(sent / seconds, 'bytes/s')}",
        ),
        traps=(
            Trap(sent / seconds * (0.5 if times else 2), "An all-reduce sends the array twice, the others once."),
            Trap(sent / seconds / devices, "The array in the line is the whole one of the group, not a shard."),
        ),
        check=f'dscale calc "{times.replace("·", "*")}2 bytes * '
        f'{rows}*{columns}*{devices - 1}/{devices} / {amount(seconds, "s")}"',
    )


@problem(
    "profiling",
    "MFU from a trace",
    chip=("h200", "h100", "v5p", "v5e", "b200"),
    params=(8e9, 1.3e9, 70e9),
    tokens=(8192, 16384, 4096),
    reached=(0.46, 0.35, 0.55, 0.28),
)
def mfu_of_a_step(chip: str, params: float, tokens: int, reached: float) -> Posed:
    peak = load_chip(chip).peak("bf16")
    flops = 6.0 * params * tokens
    seconds = float(f"{flops / (reached * peak):.4g}")
    answer = utilisation(flops, peak * seconds)
    return Posed(
        ask=f"A step of training a dense model of {number(params / 1e9)}B parameters on "
        f"{count(tokens)} tokens for each chip takes {amount(seconds, 's')} in a trace on "
        f"{chip} ({amount(peak, 'FLOP/s')} in bf16). What is the MFU, counting 6 FLOPs for "
        "each parameter and token? (A fraction or percent.)",
        answer=answer,
        hints=(
            "FLOPs that the model needs over FLOPs that the chip could have done.",
            "MFU = 6 · N · tokens / (C · t)",
        ),
        steps=(
            f"6 · {number(params / 1e9)}e9 · {tokens} = {amount(flops, 'FLOP')}",
            f"{amount(peak, 'FLOP/s')} · {amount(seconds, 's')} = {amount(peak * seconds, 'FLOP')}",
            f"MFU = {number(answer)}",
        ),
        traps=(
            Trap(answer / 3, "Training takes 6 FLOPs for each parameter and token; 2 is the forward pass alone."),
            Trap(answer * 4 / 3, "What is recomputed counts for HFU, not for MFU."),
        ),
        check=f'dscale calc "6 * {params:.0f} * {tokens} FLOP / ({chip}.bf16 * {amount(seconds, "s")})"',
    )


@problem(
    "profiling",
    "What is exposed",
    step=(40.0, 35.1, 120.0, 300.0),
    compute=(0.62, 0.7, 0.55),
    comms=(0.5, 0.4, 0.6),
    hidden=(0.6, 0.5, 0.75),
)
def exposed_communication(step: float, compute: float, comms: float, hidden: float) -> Posed | None:
    times = [round(step * part, 2) for part in (compute, comms, comms * hidden)]
    computes, moves, under = times
    exposed = round(moves - under, 4)
    idle = round(step - computes - exposed, 4)
    if idle <= 0.03 * step or abs(idle - exposed) < 0.1 * idle:
        return None
    return Posed(
        ask=f"A step of {step:g} ms: the device computes for {computes:g} ms, and collectives "
        f"run for {moves:g} ms, {under:g} ms of them while it computes. For how long is the "
        "device idle, neither computing nor waiting for a collective?",
        answer=idle * 1e-3,
        dimension="s",
        hints=("Only what is not covered by compute is exposed.", "compute + exposed communication + idle = step"),
        steps=(
            f"exposed: {moves:g} − {under:g} = {exposed:g} ms",
            f"idle: {step:g} − {computes:g} − {exposed:g} = {idle:g} ms",
        ),
        traps=tuple(
            trap
            for trap in (
                Trap((step - computes) * 1e-3, "The exposed collectives are part of that."),
                Trap(
                    (step - computes - moves) * 1e-3,
                    "Collectives that run while the device computes take no time of their own.",
                ),
            )
            if trap.value > 0
        ),
        check=f'dscale calc "{step:g}ms - {computes:g}ms - ({moves:g}ms - {under:g}ms)"',
    )


@problem(
    "profiling",
    "What a fix gained",
    before=(184.0, 90.0, 311.0, 120.0, 240.0),
    after=(67.0, 80.0, 224.0, 75.0, 100.0),
    layers=(1, 32, 80),
)
def gain_of_a_fix(before: float, after: float, layers: int) -> Posed | None:
    if after > 0.9 * before:
        return None
    saved = (before - after) * 1e-3 * layers
    return Posed(
        ask=f"Changing a sharding took a layer from {before:g} ms to {after:g} ms. How much "
        f"shorter is a step of {layers} such layer{'s' if layers > 1 else ''}?",
        answer=saved,
        dimension="s",
        hints=("What one layer saves, as many times as there are layers.", "saved = (before − after) · layers"),
        steps=(
            f"a layer: {before:g} − {after:g} = {before - after:g} ms, {number(before / after)} times as fast",
            f"· {layers} = {amount(saved, 's')}",
        ),
        traps=(Trap(after * 1e-3 * layers, "That is what the layers still take."),)
        if layers == 1
        else (
            Trap((before - after) * 1e-3, "That is one layer."),
            Trap(after * 1e-3 * layers, "That is what the layers still take."),
        ),
        check=f'dscale calc "({before:g}ms - {after:g}ms) * {layers}"',
    )
