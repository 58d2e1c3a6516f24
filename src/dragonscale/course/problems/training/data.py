"""Problems on data parallelism and FSDP: tokens a chip needs, and the chips a batch feeds."""

from math import prod

from dragonscale.course.closed_forms.training_limits import fsdp_tokens, split_ratio
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.training.torus import BATCHES, CUBES, TPUS, rates, torus
from dragonscale.course.words import amount, count, number

AXES = (1, 2, 3)


@problem(
    "training",
    "Tokens that data parallelism or FSDP needs",
    cases=("training.dp_min_batch_1axis:B_per_chip",),
    chip=TPUS,
    axes=AXES,
    scheme=("data parallelism", "FSDP"),
)
def tokens_that_fsdp_needs(chip: str, axes: int, scheme: str) -> Posed | None:
    loaded = torus(chip, axes)
    if loaded is None:
        return None
    answer = float(fsdp_tokens(loaded, axes))
    return Posed(
        ask=f"{rates(loaded)}. How many tokens must each chip have before {scheme} over {axes} ax{'i' if axes == 1 else 'e'}s hides its "
        f"communication (a layer of two bf16 matrices, gradients in bf16; collectives to first order, V/W, an AllReduce 2V/W)?",
        answer=answer,
        hints=("8BDF/(X·C) of compute against 8DF/(M·W).", "B/X = C/(M·W)."),
        steps=(
            "compute: 8·B·D·F/(X·C); communication: 8·D·F/(M·W)",
            f"B/X = {amount(loaded.peak('bf16'), 'FLOP/s')} / ({axes} · {amount(loaded.peak('bf16') / answer / axes, 'bytes/s')}) = {number(answer)}",
        ),
        traps=(
            Trap(answer * 2, "W counts both directions of an axis."),
            Trap(answer * axes if axes > 1 else answer / 3, "How many axes carry it?"),
        ),
        check=f'dscale calc "fsdp_tokens({chip}, axes={axes})"',
    )


@problem(
    "training",
    "The batch of a pod, or of a part of it",
    cases=("training.dp_min_batch_3axes_pod:B_pod",),
    chip=TPUS,
    part=(1, 2, 4, 8),
)
def batch_of_a_pod(chip: str, part: int) -> Posed | None:
    loaded = torus(chip, 1)
    assert loaded is not None
    axes, pod = loaded.network.axes, prod(loaded.network.pod)  # pyright: ignore[reportAttributeAccessIssue]
    if pod % part:
        return None
    chips, each = pod // part, float(fsdp_tokens(loaded))
    answer = each * chips
    return Posed(
        ask=f"{rates(loaded)}. How many tokens must a batch have at least, so that FSDP over all {axes} axes keeps {count(chips)} chips bound by "
        f"compute? (The plain layer of two bf16 matrices; collectives to first order, V/W.)",
        answer=answer,
        hints=("First the tokens of one chip: C/(M·W).", "Then times the chips."),
        steps=(f"a chip: {number(each)} tokens", f"{count(chips)} chips: {number(answer)}"),
        traps=(
            Trap(answer * axes, f"All {axes} axes carry the weights."),
            Trap(each, "That is one chip."),
        ),
        check=f'dscale calc "fsdp_tokens({chip}) * {chips}"',
        tolerance=0.01,
    )


@problem(
    "training",
    "Chips that a batch feeds",
    cases=("training.deepseek_v2_fsdp_chips:chips",),
    chip=CUBES,
    tokens=(40e6, 4e6, 16e6, 2e6, 60e6),
    axes=(3, 2, 1),
)
def chips_that_a_batch_feeds(chip: str, tokens: float, axes: int) -> Posed | None:
    loaded = torus(chip, axes)
    if loaded is None:
        return None
    each = float(fsdp_tokens(loaded, axes))
    answer = tokens / each
    return Posed(
        ask=f"{rates(loaded)}. How many chips can share a batch of {number(tokens)} tokens by FSDP over {axes} ax{'i' if axes == 1 else 'e'}s and stay "
        f"bound by compute? (The plain layer of two bf16 matrices; collectives to first order, V/W; not rounded.)",
        answer=answer,
        hints=("How many tokens must a chip have?", "B·M·W/C."),
        steps=(f"a chip needs {number(each)} tokens", f"{number(tokens)} / {number(each)} = {count(answer)}"),
        traps=(
            Trap(answer / axes if axes > 1 else answer * 3, "How many axes carry the weights?"),
            Trap(answer / 2, "W counts both directions of an axis."),
        ),
        check=f'dscale calc "{tokens:g} / fsdp_tokens({chip}, axes={axes})"',
    )


@problem(
    "training",
    "Compute over communication under FSDP",
    chip=("v5p", "v4", "v5e", "v6e"),
    tokens=(3_000_000, *BATCHES, 8_000_000),
    chips=(4096, 512, 1024, 2048, 256),
)
def compute_over_communication_under_fsdp(chip: str, tokens: int, chips: int) -> Posed:
    loaded = torus(chip, 1)
    assert loaded is not None
    axes = loaded.network.axes  # pyright: ignore[reportAttributeAccessIssue]
    answer = float(split_ratio(loaded, tokens, 1, chips, fsdp_axes=axes))
    each, needed = tokens / chips, float(fsdp_tokens(loaded))
    bound = "compute" if answer > 1 else "communication"
    return Posed(
        ask=f"{rates(loaded)}. A batch of {count(tokens)} tokens is shared by {count(chips)} chips, FSDP over all {axes} axes. How many times as long as "
        f"its communication does a layer of two bf16 matrices compute, collectives to first order (V/W)? (Below 1 it is bound by communication.)",
        answer=answer,
        hints=("How many tokens has a chip, how many does it need?", "B/X over C/(M·W)."),
        steps=(
            f"a chip has {number(each)} tokens and needs C/({axes}·W) = {number(needed)}",
            f"{number(each)} / {number(needed)} = {number(answer)}: bound by {bound}",
        ),
        traps=(
            Trap(answer / axes, f"All {axes} axes carry the weights."),
            Trap(1 / answer, "That is communication over compute."),
            Trap(answer / 2, "W counts both directions of an axis."),
        ),
        check=f'dscale calc "{tokens}/{chips} / fsdp_tokens({chip})"',
    )
