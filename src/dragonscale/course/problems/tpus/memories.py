"""HBM, VMEM, PCIe and DCN: what each must be fed with."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number, some
from dragonscale.physics.hardware import dtype_bytes, load_chip
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.rooflines import Cost, einsum_cost, rates_of, roofline
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh

TPUS = ("v5e", "v5p", "v6e", "v4", "v3", "tpu7x")
WITH_VMEM = ("v5e", "v5p", "v6e")
INT8 = parse_einsum("int8[B,D] @ int8[F,D] -> int8[B,F]")
SHORT = {"hbm": "HBM", "vmem": "VMEM", "pcie": "PCIe", "dcn": "DCN"}


@problem(
    "tpus",
    "Out of VMEM",
    cases=("tpus.vmem_critical_intensity:intensity",),
    chip=WITH_VMEM,
    dtype=("bf16", "int8", "int4"),
)
def vmem_intensity(chip: str, dtype: str) -> Posed | None:
    made = load_chip(chip)
    if dtype not in made.matrix:
        return None
    peak, fast, hbm = float(made.peak(dtype)), float(made.bandwidth("vmem")), float(made.bandwidth("hbm"))
    answer = float(made.intensity(dtype, level="vmem"))
    return Posed(
        ask=f"The operands of a {dtype} matmul already lie in the VMEM of a {made.title}: {amount(peak, 'FLOP/s')} in {dtype}, "
        f"VMEM at {amount(fast, 'bytes/s')}, HBM at {amount(hbm, 'bytes/s')}. From how many FLOPs per byte of VMEM on does "
        "compute bind?",
        answer=answer,
        hints=("HBM plays no part here.", "critical intensity = FLOP/s / VMEM bytes/s."),
        steps=(f"{number(peak)} / {number(fast)}", f"= {number(answer)} FLOPs per byte"),
        traps=(
            Trap(peak / hbm, "That is the figure of HBM; the operands lie in VMEM."),
            Trap(2 * answer, "FLOP/s are FLOPs already; nothing is doubled."),
        ),
        check=f'dscale calc "{chip}.{dtype} / {chip}.memory.vmem.bandwidth"',
    )


@problem(
    "tpus",
    "How much slower a wire is than HBM",
    cases=("tpus.pcie_vs_hbm_v4:ratio",),
    chip=("v4", "v5e", "v5p", "v6e", "v3", "tpu7x"),
    wire=("pcie", "dcn"),
)
def wire_against_hbm(chip: str, wire: str) -> Posed:
    made = load_chip(chip)
    hbm, slow = float(made.bandwidth("hbm")), float(made.bandwidth(wire))
    answer = hbm / slow
    return Posed(
        ask=f"The HBM of a {made.title} moves {amount(hbm, 'bytes/s')}, its {SHORT[wire]} {amount(slow, 'bytes/s')}. "
        f"How many times longer does it take to bring an array over {SHORT[wire]} than out of HBM?",
        answer=answer,
        hints=("The array's size cancels.", "ratio = HBM bandwidth / the wire's bandwidth."),
        steps=(f"{number(hbm)} / {number(slow)}", f"= {number(answer)}"),
        traps=(
            Trap(answer / 8, "Both are bytes per second; nothing is in bits."),
            Trap(1 / answer, "Upside down: the wire is the slower one."),
        ),
        check=f'dscale calc "{chip}.hbm_bandwidth / {chip}.{wire}"',
    )


@problem(
    "tpus",
    "Loading the weights for one token",
    cases=("tpus.q1_param_load_latency:t",),
    chip=("v4", "v5e", "v5p", "v6e", "tpu7x"),
    billions=(200, 70, 8, 405, 13),
    chips=(32, 8, 16, 64, 256),
    dtype=("bf16", "int8", "int4"),
)
def weight_load(chip: str, billions: int, chips: int, dtype: str) -> Posed | None:
    made = load_chip(chip)
    held = float(local_bytes(parse_array(f"W:{dtype}[P_X]"), {"P": billions * 1e9}, Mesh({"X": chips})))
    if held > made.hbm.capacity:
        return None
    hbm = float(made.bandwidth("hbm"))
    answer = float(roofline(Cost(bytes={"hbm": held}), rates_of(made)).lower)
    each = float(dtype_bytes(dtype))
    return Posed(
        ask=f"A model of {billions}B parameters in {dtype} is split evenly over {chips} {chip} chips. Decoding a token reads "
        f"every weight once. How long does that take at least, HBM at {amount(hbm, 'bytes/s')} a chip?",
        answer=answer,
        dimension="s",
        hints=(
            "Each chip reads its own part, all at the same time.",
            "T = parameters · bytes / chips / HBM bandwidth.",
        ),
        steps=(
            f"{billions}e9 · {each:g} / {chips} = {amount(held, 'bytes')} a chip",
            f"/ {number(hbm)} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * chips, "The chips read their parts at the same time."),
            Trap(answer / each if each != 1 else 2 * answer, f"A parameter takes {some(each, 'byte')} in {dtype}."),
        ),
        check=f'dscale calc "{billions}e9 * {each:g} bytes / {chips} / {chip}.hbm_bandwidth"',
    )


@problem(
    "tpus",
    "Weights that live on the host",
    cases=("tpus.q3_pcie_critical_batch:B_crit",),
    chip=("v6e", "v5e", "v5p", "v4", "h100"),
    pcie=(16e9, 32e9, 64e9, 128e9),
    dtype=("bf16", "int8"),
)
def pcie_critical_batch(chip: str, pcie: float, dtype: str) -> Posed:
    made = load_chip(chip).with_facts(pcie=pcie)
    each, peak = float(dtype_bytes(dtype)), float(made.peak("bf16"))
    line = parse_einsum(f"bf16[B,D] @ {dtype}[D,F]")
    one = roofline(
        einsum_cost(line, {"B": 1, "D": 4096, "F": 16384}, level="pcie", counted=(1,)), rates_of(made)
    ).seconds
    answer = float(one["pcie"] / one["matrix"])
    hbm = peak / float(made.bandwidth("hbm")) * each / 2
    return Posed(
        ask=f"Weights stay in the host's memory and stream over PCIe at {amount(pcie, 'bytes/s')} to one {chip} "
        f"({amount(peak, 'FLOP/s')} in bf16) for every step. They are {dtype}, the multiplication is bf16. From which batch "
        "(tokens) on is a matmul bound by compute, the activations' bytes left out?",
        answer=answer,
        hints=(
            "The usual question, with PCIe in place of HBM.",
            "2·B·D·F/C = bytes per weight·D·F/W_pcie, solved for B.",
        ),
        steps=(
            f"B = {each:g}/2 · C/W = {each / 2:g} · {number(peak)} / {number(pcie)}",
            f"= {count(answer)} tokens",
        ),
        traps=(
            Trap(hbm, "That is out of HBM; PCIe is far slower."),
            Trap(2 * answer, f"A weight takes {some(each, 'byte')}, a multiply-add two FLOPs."),
        ),
        check=f'dscale calc "{each:g} / 2 * {chip}.bf16 / {amount(pcie, "bytes/s")}"',
    )


def _int8_turn(chip: str, memory: str, model: int, hidden: int) -> float:
    """The batch at which an int8 matmul, all its bytes counted, turns from memory-bound to compute-bound."""
    at = [
        roofline(einsum_cost(INT8, {"B": b, "D": model, "F": hidden}, level=memory), rates_of(load_chip(chip))).seconds
        for b in (0, 1)
    ]
    gain = float((at[1]["matrix"] - at[0]["matrix"]) - (at[1][memory] - at[0][memory]))
    return float(at[0][memory]) / gain if gain > 0 else 0.0


def _turn(chip: str, memory: str, model: int, hidden: int) -> Posed | None:
    made = load_chip(chip)
    answer = _int8_turn(chip, memory, model, hidden)
    if answer <= 0:
        return None
    peak, fast = float(made.peak("int8")), float(made.bandwidth(memory))
    other = _int8_turn(chip, "hbm" if memory == "vmem" else "vmem", model, hidden)
    traps = [Trap(2 * answer, "A multiply-add is two FLOPs, and int8 one byte.")]
    if memory == "hbm":  # in VMEM B is so small beside the other dims that leaving them out is no mistake
        traps.append(Trap(peak / fast / 2, "The activations' bytes count too."))
    if other > 0:
        traps.append(Trap(other, f"The operands lie in {SHORT[memory]}."))
    return Posed(
        ask=f"int8[B, {model}] · int8[{hidden}, {model}] -> int8[B, {hidden}] on one {chip}, everything in {SHORT[memory]} "
        f"({amount(fast, 'bytes/s')}), {amount(peak, 'FLOP/s')} in int8. From which B on does compute bind, all bytes "
        "counted?",
        answer=answer,
        hints=(
            "Two lines in B: the one of compute starts at nothing and is steeper.",
            "2·B·D·F/C = (B·D + D·F + B·F)/W, solved for B.",
        ),
        steps=(
            f"compute: {number(2.0 * model * hidden)}·B / {number(peak)}",
            f"{SHORT[memory]}: ({count(model * hidden)} + {count(model + hidden)}·B) / {number(fast)}",
            f"equal at B = {number(answer)}",
        ),
        traps=tuple(traps),
        tolerance=0.01,
        check=f'dscale roofline "int8[B,{model}] @ int8[{model},{hidden}] -> int8[B,{hidden}]" --on {chip} --memory {memory}',
    )


@problem(
    "tpus",
    "An int8 matmul out of HBM",
    cases=("tpus.q4_hbm_crossover:B_crit",),
    chip=("v5e", "v5p", "v6e"),
    model=(4096, 8192, 5120),
    hidden=(16384, 28672, 20480),
)
def int8_turn_in_hbm(chip: str, model: int, hidden: int) -> Posed | None:
    return _turn(chip, "hbm", model, hidden)


@problem(
    "tpus",
    "The same matmul out of VMEM",
    cases=("tpus.q4_vmem_crossover:B_crit",),
    chip=("v5e", "v5p", "v6e"),
    model=(4096, 2048, 1024),
    hidden=(16384, 8192, 4096),
)
def int8_turn_in_vmem(chip: str, model: int, hidden: int) -> Posed | None:
    return _turn(chip, "vmem", model, hidden)
