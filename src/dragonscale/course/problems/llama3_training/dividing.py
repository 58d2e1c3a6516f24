"""Problems on dividing a run: sequences, tokens a chip, the mixture, several pods."""

import math

from dragonscale.course.closed_forms.crossovers import power_splits
from dragonscale.course.closed_forms.rooflines import wire_intensity
from dragonscale.course.closed_forms.rules_of_thumb import DAY, run_seconds, sequences
from dragonscale.course.closed_forms.training_limits import (
    fsdp_tokens,
    mixed_degree,
    mixed_ratio,
    mixed_tokens,
    split_ratio,
)
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines.counts import model_flops

CUBES = ("v5p", "v4", "tpu7x")
WIDTHS = {"llama3-70b": 28672, "llama3-8b": 14336, "llama3-405b": 53248, "llama2-13b": 13824}


@problem(
    "llama3-training",
    "FSDP over whole sequences",
    cases=("applied-training.fsdp_no_sequence:max_dp",),
    tokens=(2**22, 2**20, 2**21, 2**23, 2**24),
    length=(4096, 2048, 8192, 16384, 32768),
)
def fsdp_over_whole_sequences(tokens: int, length: int) -> Posed:
    answer = float(sequences(tokens, length))
    return Posed(
        ask=f"A batch of {count(tokens)} tokens has sequences of {count(length)}. If only whole sequences may be given to a chip, to how many chips can FSDP alone "
        f"spread it?",
        answer=answer,
        whole=True,
        hints=("How many sequences are there?", "B/T."),
        steps=(f"{tokens} / {length}", f"= {count(answer)} sequences, one for each chip"),
        traps=(
            Trap(float(tokens), "Splitting sequences is context parallelism."),
            Trap(answer * length / 850, "850 tokens a chip is where FSDP hides, not how far whole sequences reach."),
        ),
        check=f'dscale calc "sequences({tokens}, {length})"',
    )


@problem(
    "llama3-training",
    "Tokens a chip, and tokens it needs",
    chip=CUBES,
    tokens=(2**22, 2**20, 2**21, 2**23, 2**24),
    chips=(8960, 4096, 8192, 2048, 1024),
)
def tokens_had_over_tokens_needed(chip: str, tokens: int, chips: int) -> Posed:
    loaded = load_chip(chip)
    needed = float(fsdp_tokens(loaded))
    answer = tokens / chips / needed
    return Posed(
        ask=f"On a {chip} C/W (bf16 FLOPs for a byte over both directions of one axis) is {number(wire_intensity(loaded))}. {count(tokens)} tokens are spread over {count(chips)} "
        f"chips, batch and sequence both split, FSDP over three axes. Which part of the tokens that a chip needs to be bound by compute does it have, collectives to first order (V/W on rings)?",
        answer=answer,
        hints=("A chip needs C/(3·W) tokens.", "B/N over C/(3·W)."),
        steps=(
            f"it has {tokens} / {chips} = {number(tokens / chips)}",
            f"it needs {number(needed)}",
            f"part: {number(answer)}" + (", so communication binds" if answer < 1 else ", so compute binds"),
        ),
        traps=(
            Trap(answer / 3, "All three axes carry the weights."),
            Trap(1 / answer, "That is the other way round."),
        ),
        check=f'dscale calc "{tokens}/{chips} / fsdp_tokens({chip})"',
    )


@problem(
    "llama3-training",
    "The mixture's threshold",
    cases=("applied-training.mixed_plan:threshold",),
    chip=CUBES,
    model=tuple(WIDTHS),
    edition=("max", "sum"),
)
def threshold_of_the_mixture(chip: str, model: str, edition: str) -> Posed:
    loaded, width = load_chip(chip), WIDTHS[model]
    answer, ratio = float(mixed_tokens(loaded, width, overlap=edition)), wire_intensity(loaded)
    together = "at the same time" if edition == "max" else "one after the other"
    factor = "" if edition == "max" else "4·"
    return Posed(
        ask=f"On a {chip} C/W (bf16 FLOPs for a byte over both directions of one axis) is {number(ratio)}. How many tokens a chip does {model} (F = {count(width)}) need at least under "
        f"FSDP over two axes with TP over one, divided at best, if their collectives run {together}? Collectives to first order, V/W on rings.",
        answer=answer,
        hints=("Both collectives take equally long at the best split.", f"{factor}(C/W)²/(2F)."),
        steps=(f"{factor}{number(ratio)}² / (2 · {width})", f"= {number(answer)}"),
        traps=(
            Trap(answer * 4 if edition == "max" else answer / 4, "Do the collectives of the two overlap?"),
            Trap(answer * 2, "FSDP has two axes."),
            Trap(ratio / 3, "That is FSDP alone."),
        ),
        check=f'dscale calc "mixed_tokens({chip}, width={model}.F, overlap={edition})"',
    )


@problem(
    "llama3-training",
    "The split in powers of two",
    cases=("applied-training.mixed_plan:X_choice",),
    chip=CUBES,
    tokens=(4.19e6, 1e6, 2e6, 8e6, 16e6),
    chips=(8960, 4096, 2048, 1024, 512),
    model=tuple(WIDTHS),
)
def split_in_powers_of_two(chip: str, tokens: float, chips: int, model: str) -> Posed | None:
    loaded, width = load_chip(chip), WIDTHS[model]
    ranked = sorted(
        ((float(split_ratio(loaded, tokens, width, one["X"], one["Y"])), one["X"]) for one in power_splits(chips)[1:]),
        reverse=True,
    )
    if ranked[0][0] < 1.02 * ranked[1][0] or ranked[0][1] == 2 ** int(math.log2(chips)):
        return None
    answer, best = float(ranked[0][1]), float(mixed_degree(loaded, tokens, width, chips))
    used = 2 ** int(math.log2(chips))
    return Posed(
        ask=f"FSDP over two axes and TP over one share {count(used)} of {count(chips)} {chip}s, both degrees powers of two, for {number(tokens)} tokens of {model} (F = {count(width)}). Which "
        f"FSDP degree communicates least (the longer of F/(2·Y) and B/X)?",
        answer=answer,
        whole=True,
        hints=(
            "The degree that is not rounded is √(2·B·N/F); look at the powers of two beside it.",
            "X·Y = N; compare max(F/(2Y), B/X).",
        ),
        steps=(
            f"not rounded: √(2 · {number(tokens)} · {chips} / {width}) = {number(best)}",
            f"X = {count(answer)}, Y = {count(used / answer)}: max({number(width * answer / 2 / used)}, {number(tokens / answer)})",
        ),
        traps=(
            Trap(answer / 2, "Compare both neighbours."),
            Trap(answer * 2, "Compare both neighbours."),
            Trap(used / answer if used != answer**2 else answer * 4, "That is the tensor degree."),
        ),
        check=f'dscale calc "2^round(log2(mixed_degree({chip}, tokens={tokens:g}, width={model}.F, chips={used})))"',
    )


@problem(
    "llama3-training",
    "A batch over several pods",
    cases=("applied-training.q1_four_pods:ratio",),
    tokens=(2**22, 2**21, 2**23, 2**24),
    pods=(4, 2, 3, 6, 8),
    model=tuple(WIDTHS),
)
def several_pods(tokens: int, pods: int, model: str) -> Posed:
    loaded, width, pod = load_chip("v5p"), WIDTHS[model], 8960
    answer = float(mixed_ratio(loaded, tokens / pods, width, pod))
    return Posed(
        ask=f"{model} (F = {count(width)}) trains on {pods} pods of {count(pod)} v5p with {count(tokens)} tokens a step: replicas across pods, FSDP over two axes with TP over one inside. "
        f"C/W of an axis is 2,550. How many times as long as its communication inside a pod does a layer compute, at the best split (not rounded), the collectives of FSDP and TP at the same time and to first order (V/W on rings)?",
        answer=answer,
        hints=("Each pod has its own part of the batch.", "√(B·F·2/N)/(C/W), with B and N of one pod."),
        steps=(
            f"a pod: {count(tokens / pods)} tokens, {number(tokens / pods / pod)} a chip",
            f"√({number(tokens / pods)} · {width} · 2 / {pod}) / 2,550 = {number(answer)}",
        ),
        traps=(
            Trap(float(mixed_ratio(loaded, tokens, width, pod)), "The batch is shared by the pods."),
            Trap(answer / math.sqrt(2), "FSDP has two axes."),
        ),
        check=f'dscale calc "mixed_ratio(v5p, tokens={tokens}/{pods}, width={width}, chips={pod})"',
    )


@problem(
    "llama3-training",
    "Days on several pods",
    cases=(),
    pods=(4, 2, 3, 6),
    mfu=(0.4, 0.35, 0.5, 0.55),
    params=(70e9, 8e9, 405e9),
    tokens=(15e12, 2e12, 30e12),
)
def days_on_several_pods(pods: int, mfu: float, params: float, tokens: float) -> Posed | None:
    peak, flops = load_chip("v5p").peak("bf16"), float(model_flops(params, tokens))
    answer = float(run_seconds(flops, pods * 8960, peak, mfu))
    if answer < 2 * DAY:
        return None
    return Posed(
        ask=f"{pods} pods of 8,960 v5p ({amount(peak, 'FLOP/s')} each) train {number(params)} parameters on {number(tokens)} tokens at {mfu:.0%} MFU. How long does it take? 6 FLOPs a parameter and "
        f"token; answer in days, such as 12d.",
        answer=answer,
        dimension="s",
        hints=("FLOPs of the run over what all chips really do.", "6PT / (N·C·MFU)."),
        steps=(
            f"FLOPs: {number(flops)}; chips: {count(pods * 8960)}",
            f"{number(flops)} / ({count(pods * 8960)} · {number(peak)} · {mfu}) = {number(answer)} s",
            f"= {number(answer / DAY)} days",
        ),
        traps=(
            Trap(answer * pods, "All pods work on the same run."),
            Trap(answer * mfu, "That is at the full peak."),
        ),
        check=f'dscale calc "run_seconds(model_flops({params:g}, {tokens:g}), chips={pods * 8960}, peak=v5p.bf16, mfu={mfu})" --to days',
    )
