"""Times from rates, the two bounds, the roof."""

from dragonscale.course.closed_forms.chip_parts import dense_rate
from dragonscale.course.closed_forms.rules_of_thumb import run_seconds
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.rooflines.chip_facts import CHIPS, peak_and_hbm, told
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines import Cost, Rates, attainable, rates_of, roofline

BF16 = ("matrix", "bf16")


@problem(
    "rooflines",
    "FLOPs at the peak rate",
    cases=("roofline.t_math_v6e:t_math",),
    chip=("v6e", *(name for name in CHIPS if name != "v6e")),
    flops=(1e12, 3e12, 2e13, 5e14, 7.5e11, 4e15),
)
def time_of_flops(chip: str, flops: float) -> Posed:
    _, peak, _ = peak_and_hbm(chip)
    answer = float(roofline(Cost(flops={BF16: flops}), rates_of(load_chip(chip))).lower)
    return Posed(
        ask=f"How long do {number(flops)} bf16 FLOPs take at the peak rate of one {chip}, {amount(peak, 'FLOP/s')}?",
        answer=answer,
        dimension="s",
        hints=("Nothing but arithmetic is counted: no bytes.", "T_math = FLOPs / peak FLOP/s."),
        steps=(
            f"T_math = {number(flops)} FLOPs / {number(peak)} FLOP/s",
            f"T_math = {amount(answer, 's')}",
        ),
        traps=(
            Trap(2 * answer, "These are FLOPs already; only multiply-adds would be counted twice."),
            Trap(answer / 2, "That would be a format twice as fast; the bf16 rate is given."),
        ),
        check=f'dscale calc "{number(flops)} FLOP / {chip}.bf16"',
    )


@problem(
    "rooflines",
    "With and without overlap",
    cases=("roofline.time_bounds:t_upper",),
    math_ms=(3, 1, 2, 4, 7, 10),
    comms_ms=(2, 1, 5, 9, 12, 0.5),
    overlap=("nothing", "everything"),
)
def with_and_without_overlap(math_ms: float, comms_ms: float, overlap: str) -> Posed | None:
    if math_ms == comms_ms:
        return None
    found = roofline(Cost({BF16: math_ms / 1e3}, {"hbm": comms_ms / 1e3}), Rates({BF16: 1.0}, {"hbm": 1.0}))
    lower, upper = float(found.lower), float(found.upper)
    answer, other = (upper, lower) if overlap == "nothing" else (lower, upper)
    command = f"{math_ms}ms + {comms_ms}ms" if overlap == "nothing" else f"max({math_ms}ms, {comms_ms}ms)"
    return Posed(
        ask=f"An operation computes for {math_ms}ms and moves bytes for {comms_ms}ms. "
        f"How long does it take if {overlap} overlaps?",
        answer=answer,
        dimension="s",
        hints=(
            "Either one waits for the other, or the shorter hides behind the longer.",
            "Lower bound: max(T_math, T_comms). Upper bound: T_math + T_comms.",
        ),
        steps=(
            f"lower bound, perfect overlap: max({math_ms}, {comms_ms}) = {amount(lower, 's')}",
            f"upper bound, no overlap: {math_ms} + {comms_ms} = {amount(upper, 's')}",
            f"asked: {overlap} overlaps, {amount(answer, 's')}",
        ),
        traps=(
            Trap(other, "That is the other bound."),
            Trap(min(math_ms, comms_ms) / 1e3, "The shorter one hides; the longer one is what is left."),
        ),
        check=f'dscale calc "{command}"',
    )


@problem(
    "rooflines",
    "What an intensity allows",
    cases=("roofline.attainable_flops:attainable_a",),
    chip=("v5e", *(name for name in CHIPS if name != "v5e")),
    intensity=(100, 10, 30, 60, 150, 400, 1000),
)
def attainable_rate(chip: str, intensity: int) -> Posed:
    _, peak, hbm = peak_and_hbm(chip)
    answer = float(attainable(intensity, peak, hbm))
    other = intensity * hbm if answer == peak else peak
    return Posed(
        ask=f"An operation does {intensity} FLOPs for every byte of HBM. Which FLOP/s can it reach at best? {told(chip)}.",
        answer=answer,
        dimension="FLOP/s",
        hints=(
            "Two things limit the rate: the matrix units, and how fast bytes arrive to be worked on.",
            "attainable = min(C, intensity · W).",
        ),
        steps=(
            f"intensity · W = {intensity} · {number(hbm)} = {amount(intensity * hbm, 'FLOP/s')}",
            f"C = {amount(peak, 'FLOP/s')}",
            f"the smaller: {amount(answer, 'FLOP/s')}",
        ),
        traps=(
            Trap(other, "That is the limit that does not bind here; the smaller of the two counts."),
            Trap(hbm / intensity, "Bytes per second times FLOPs per byte, not divided by them."),
        ),
        check=f'dscale calc "min({chip}.bf16, {intensity} FLOP/byte * {chip}.hbm_bandwidth)"',
    )


@problem(
    "rooflines",
    "The vector unit's own roof",
    cases=("roofline.v5p_vpu_critical_intensity:intensity",),
    chip=("v5p", "v5e", "v6e", "v4", "v3", "tpu7x", "h100", "a100", "h200", "b200"),
)
def vector_unit_intensity(chip: str) -> Posed:
    made, vector, hbm = load_chip(chip), float(load_chip(chip).peak("fp32", "vector")), peak_and_hbm(chip)[2]
    answer = float(made.intensity("fp32", unit="vector"))
    matrix = float(made.intensity("bf16"))
    traps = [Trap(matrix, "That is the matrix units' figure; elementwise work does not run there.")]
    if int(made.structure.get("cores", 1)) == 2:
        traps.append(Trap(answer / 2, "One core's rate against the whole chip's HBM: both cores share it."))
    traps.append(Trap(1 / answer, "That is bytes per FLOP."))
    return Posed(
        ask=f"The vector units of a whole {made.title} do {amount(vector, 'FLOP/s')} in fp32, its HBM moves "
        f"{amount(hbm, 'bytes/s')}. From how many FLOPs per byte on is elementwise work bound by compute?",
        answer=answer,
        hints=(
            "The same question as for a matmul, with another rate above the line.",
            "critical intensity = vector FLOP/s / HBM bytes/s, both of the whole chip.",
        ),
        steps=(f"{number(vector)} FLOP/s / {number(hbm)} bytes/s", f"= {number(answer)} FLOPs per byte"),
        traps=tuple(traps),
        check=f'dscale roofline "gelu(bf16[1024,8192])" --on {chip}',
    )


@problem(
    "rooflines",
    "A datasheet with sparsity",
    cases=("roofline.q5_h100_dense_flops:dense_peak",),
    printed=(1.979e15, 6.24e14, 4.5e15, 9e15, 1.248e15, 3.958e15, 2.5e15, 7.328e14, 1.466e15, 1e16),
)
def dense_from_sparse(printed: float) -> Posed:
    answer = float(dense_rate(printed))
    return Posed(
        ask=f"A datasheet prints {amount(printed, 'FLOP/s')} for a GPU, with a footnote: with sparsity "
        "(two of every four weights are zero). Which FLOP/s does an ordinary, dense matmul get at most?",
        answer=answer,
        dimension="FLOP/s",
        hints=("Skipped multiplications by zero were counted as if done.", "dense = printed · 2/4."),
        steps=(f"{number(printed)} · 2/4", f"= {amount(answer, 'FLOP/s')}"),
        traps=(
            Trap(printed, "Ordinary matrices have no such zeros to skip."),
            Trap(printed / 4, "Two of four weights are kept, not one."),
        ),
        check=f'dscale calc "dense_rate({number(printed)} FLOP/s)"',
    )


@problem(
    "rooflines",
    "A better model that runs worse",
    cases=("index.roofline_tradeoff:net",),
    gain=(1.2, 1.1, 1.3, 1.5, 1.05),
    kept=(0.8, 0.6, 0.7, 0.9, 0.5),
)
def quality_against_efficiency(gain: float, kept: float) -> Posed | None:
    slower = run_seconds(1.0, 1, 1.0) / run_seconds(1.0, 1, 1.0, mfu=kept)
    answer = gain * slower
    return Posed(
        ask=f"A new architecture needs fewer FLOPs for the same quality, as if compute were {gain:g} times as good. "
        f"But it reaches only {kept:.0%} of the rate that the old one reached. "
        "How good is it per hour of the same chips, as a multiple of the old one?",
        answer=float(answer),
        hints=("Quality per FLOP times FLOPs per hour.", "net = gain · share of the rate that is kept."),
        steps=(f"{gain:g} · {kept:g}", f"= {number(answer)}: " + ("a loss" if answer < 1 else "still a gain")),
        traps=(
            Trap(gain - (1 - kept), "The two multiply; they do not add."),
            Trap(gain, "The lost rate counts too."),
            Trap(gain / kept, "A lower rate makes it worse, not better."),
        ),
        tolerance=0.01,
        check=f'dscale calc "{gain:g} * {kept:g}"',
    )


@problem(
    "rooflines",
    "Tokens for each chip",
    cases=("roofline.local_batch_tokens:local_tokens",),
    sequences=(512, 256, 1024, 2048, 128),
    length=(4096, 2048, 8192, 32768),
    chips=(2048, 256, 512, 1024, 4096),
)
def tokens_for_each_chip(sequences: int, length: int, chips: int) -> Posed | None:
    from dragonscale.physics.notation import parse_array
    from dragonscale.physics.sharding.layout import local_bytes
    from dragonscale.physics.sharding.mesh import Mesh

    # one byte for each token, so that bytes count tokens
    answer = float(local_bytes(parse_array("int8[T_X]"), {"T": sequences * length}, Mesh({"X": chips})))
    return Posed(
        ask=f"A training step takes {count(sequences)} sequences of {count(length)} tokens, split evenly over "
        f"{count(chips)} chips. How many tokens does each chip's matmul see as its batch?",
        answer=answer,
        whole=True,
        hints=("The batch of a matmul counts tokens, not sequences.", "local batch = sequences · length / chips."),
        steps=(
            f"{count(sequences)} · {count(length)} = {count(sequences * length)} tokens in all",
            f"/ {count(chips)} = {number(answer)} tokens a chip",
        ),
        traps=(
            Trap(sequences / chips, "Those are sequences; each has many tokens, and every token is a row."),
            Trap(float(sequences * length), "That is the batch of all chips together."),
        ),
        check=f'dscale calc "{sequences} * {length} / {chips}"',
    )
