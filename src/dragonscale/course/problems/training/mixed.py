"""Problems on FSDP and tensor parallelism together: tokens, the best split, splits in whole numbers."""

import math

from dragonscale.course.closed_forms.rooflines import wire_intensity
from dragonscale.course.closed_forms.training_limits import (
    mixed_degree,
    mixed_ratio,
    mixed_tokens,
    split_ratio,
    split_tokens,
    tp_degree,
)
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.training.torus import BATCHES, CUBES, WIDTHS, alpha
from dragonscale.course.words import count, number
from dragonscale.physics.hardware import load_chip


@problem(
    "training",
    "Tokens that FSDP with TP needs",
    cases=("training.llama70b_2M_limits:mixed_threshold",),
    chip=CUBES,
    width=(30000, *WIDTHS),
    overlap=("max", "sum"),
)
def tokens_that_a_mixture_needs(chip: str, width: int, overlap: str) -> Posed:
    loaded = load_chip(chip)
    answer = float(mixed_tokens(loaded, width, overlap=overlap))
    ratio = wire_intensity(loaded)
    together = "the two run at the same time" if overlap == "max" else "the two run one after the other"
    factor = "" if overlap == "max" else "4 · "
    return Posed(
        ask=f"{alpha(loaded)}. How many tokens must a chip have at least, if FSDP over two axes and TP over one divide the chips at best and {together}, "
        f"with F = {count(width)} (a layer of two bf16 matrices)?",
        answer=answer,
        hints=(
            "At the best split both take equally long.",
            f"B/N = {factor}(C/W)²/(M_X·M_Y·F).",
        ),
        steps=(
            f"(C/W)² = {number(ratio)}² = {number(ratio**2)}",
            f"{factor}{number(ratio**2)} / (2 · 1 · {width}) = {number(answer)}",
        ),
        traps=(
            Trap(answer * 4 if overlap == "max" else answer / 4, "Do the two collectives overlap each other or not?"),
            Trap(answer * 2, "FSDP has two axes."),
            Trap(ratio / 3, "That is FSDP alone over three axes."),
        ),
        check=f'dscale calc "mixed_tokens({chip}, width={width}, overlap={overlap})"',
    )


@problem(
    "training",
    "The best FSDP degree",
    cases=("training.mixed_xopt_4x4x4:X_opt",),
    tokens=(49152, 2**20, 2**21, 2**22, 10**7),
    width=(32768, *WIDTHS),
    chips=(64, 512, 1024, 4096, 8960),
)
def best_degree_of_fsdp(tokens: int, width: int, chips: int) -> Posed | None:
    answer = float(mixed_degree(load_chip("v5p"), tokens, width, chips))
    if not 1.5 < answer < chips:
        return None
    return Posed(
        ask=f"FSDP over two axes of a torus and TP over one share {count(chips)} chips. Which FSDP degree makes their collectives take equally long, to first order (V/W), for a batch "
        f"of {count(tokens)} tokens and F = {count(width)}? Not rounded.",
        answer=answer,
        hints=(
            "4DF/(Y·W·M_X) = 4BD/(X·W·M_Y) with Y = N/X.",
            "X = √(B/F · M_X/M_Y · N).",
        ),
        steps=(
            f"B/F = {number(tokens / width)}, M_X/M_Y = 2, N = {chips}",
            f"X = √({number(tokens / width)} · 2 · {chips}) = {number(answer)}",
        ),
        traps=(
            Trap(answer / math.sqrt(2), "FSDP has two axes, TP one."),
            Trap(chips / answer, "That is the tensor degree."),
        ),
        check=f'dscale calc "mixed_degree(v5p, tokens={tokens}, width={width}, chips={chips})"',
    )


@problem(
    "training",
    "Compute over communication at the best split",
    cases=("training.mixed_ratio:ratio",),
    chip=CUBES,
    tokens=(48000, 2**16, 2**18, 2**20),
    width=(32768, *WIDTHS),
    chips=(64, 256, 512, 1024),
)
def ratio_at_the_best_split(chip: str, tokens: int, width: int, chips: int) -> Posed:
    loaded = load_chip(chip)
    answer = float(mixed_ratio(loaded, tokens, width, chips))
    ratio = wire_intensity(loaded)
    return Posed(
        ask=f"{alpha(loaded)}. How many times longer than its communication does a layer compute, if FSDP over two axes and TP over one divide {count(chips)} "
        f"chips at best, for {count(tokens)} tokens and F = {count(width)} (two bf16 matrices, the two collectives at the same time)?",
        answer=answer,
        hints=("Put the best X into compute over communication.", "√(B·F·M_X·M_Y/N) / (C/W)."),
        steps=(
            f"√({tokens} · {width} · 2 / {chips}) = {number(answer * ratio)}",
            f"over {number(ratio)}: {number(answer)}",
        ),
        traps=(
            Trap(answer**2, "The ratio grows with the root of the batch."),
            Trap(answer / math.sqrt(2), "FSDP has two axes."),
        ),
        check=f'dscale calc "mixed_ratio({chip}, tokens={tokens}, width={width}, chips={chips})"',
    )


@problem(
    "training",
    "A split in whole numbers",
    cases=("applied-training.q1_four_pods_discrete:ratio_1024x8",),
    chip=CUBES,
    tokens=(2**20, *BATCHES, 10**6),
    width=WIDTHS,
    split=((1024, 8), (512, 16), (2048, 4), (256, 16), (128, 8), (64, 4)),
)
def ratio_of_a_split(chip: str, tokens: int, width: int, split: tuple[int, int]) -> Posed:
    loaded, (fsdp, tensor) = load_chip(chip), split
    answer = float(split_ratio(loaded, tokens, width, fsdp, tensor))
    ratio = wire_intensity(loaded)
    weights, activations = width / (2 * tensor), tokens / fsdp
    math_term = tokens * width / (fsdp * tensor * ratio)
    return Posed(
        ask=f"{alpha(loaded)}. FSDP={fsdp} over two axes and TP={tensor} over one: how many times longer than its communication does a layer compute, for "
        f"{count(tokens)} tokens and F = {count(width)} (two bf16 matrices, the two collectives at the same time)?",
        answer=answer,
        hints=(
            "In the same unit: compute B·F/(X·Y·C/W), FSDP F/(Y·M_X), TP B/(X·M_Y).",
            "Divide compute by the larger of the other two.",
        ),
        steps=(
            f"compute: {tokens} · {width} / ({fsdp} · {tensor} · {number(ratio)}) = {number(math_term)}",
            f"FSDP: {width}/({tensor} · 2) = {number(weights)}; TP: {tokens}/{fsdp} = {number(activations)}",
            f"{number(math_term)} / {number(max(weights, activations))} = {number(answer)}",
        ),
        traps=(
            Trap(math_term / min(weights, activations), "The longer of the two decides, not the shorter."),
            Trap(math_term / (weights + activations), "They run at the same time, so they are not added."),
        ),
        check=f'dscale calc "split_ratio({chip}, tokens={tokens}, width={width}, fsdp={fsdp}, tensor={tensor})"',
    )


@problem(
    "training",
    "From which batch on a split is bound by compute",
    cases=("training.fig_16x16x16_crossovers:dp512_tp8",),
    chip=CUBES,
    width=(32768, 53248, 28672, 49152),
    split=((512, 8), (1024, 4), (256, 8), (2048, 2), (128, 4)),
)
def batch_of_a_split(chip: str, width: int, split: tuple[int, int]) -> Posed | None:
    loaded, (fsdp, tensor) = load_chip(chip), split
    if tensor > tp_degree(loaded, width):
        return None
    answer = float(split_tokens(loaded, width, fsdp, tensor))
    ratio = wire_intensity(loaded)
    return Posed(
        ask=f"{alpha(loaded)}. From how many tokens of a batch on is a layer with F = {count(width)} bound by compute under FSDP={fsdp} over two axes and TP={tensor} "
        f"over one (two bf16 matrices)? TP={tensor} hides at any batch.",
        answer=answer,
        hints=(
            "Tensor parallelism does not depend on the batch; FSDP does.",
            "F/(Y·M_X) = B·F/(X·Y·C/W), so B = X·(C/W)/M_X.",
        ),
        steps=(f"B = {fsdp} · {number(ratio)} / 2", f"= {count(answer)}"),
        traps=(
            Trap(
                answer * tensor,
                "TP divides the weights that FSDP gathers as it divides the compute: only FSDP's chips count.",
            ),
            Trap(answer * 2, "FSDP has two axes."),
        ),
        check=f'dscale calc "split_tokens({chip}, width={width}, fsdp={fsdp}, tensor={tensor})"',
    )
