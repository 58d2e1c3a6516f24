"""Problems on pipelines and pods: bubbles, hops, tokens that a pod needs."""

from dragonscale.course.closed_forms.rules_of_thumb import sequences, stage_utilisation
from dragonscale.course.closed_forms.training_limits import pod_tokens
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.training.torus import BATCHES
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import parse_array
from dragonscale.physics.rooflines import array_bytes


@problem(
    "training",
    "The bubble of a pipeline",
    cases=("training.pp_microbatch_bubble:bubble",),
    stages=(8, 4, 16, 2),
    microbatches=(32, 8, 16, 64, 12),
)
def bubble_of_a_pipeline(stages: int, microbatches: int) -> Posed:
    answer = 1 - float(stage_utilisation(stages, microbatches))
    return Posed(
        ask=f"{microbatches} microbatches pass through a pipeline of {stages} equal stages, all forward and then all backward. Which part of the step does a "
        f"stage wait? As a fraction or in percent.",
        answer=answer,
        hints=("A stage waits for Z − 1 microbatches to fill and drain.", "(Z−1)/(m+Z−1)."),
        steps=(
            f"the step lasts {microbatches} + {stages} − 1 = {microbatches + stages - 1} microbatches",
            f"{stages - 1} of them are waiting: {number(answer, 3)}",
        ),
        traps=(
            Trap((stages - 1) / microbatches, "That is the wait over the work; the part of the whole step was asked."),
            Trap(1 - answer, "That is the part in which it works."),
        ),
        check=f'dscale calc "1 - stage_utilisation(stages={stages}, microbatches={microbatches})"',
    )


@problem(
    "training",
    "Microbatches that keep the bubble small",
    stages=(8, 4, 16, 12, 6),
    part=(0.1, 0.05, 0.2, 0.15),
)
def microbatches_for_a_bubble(stages: int, part: float) -> Posed:
    answer = next(m for m in range(1, 2000) if 1 - float(stage_utilisation(stages, m)) <= part + 1e-12)
    return Posed(
        ask=f"How many microbatches does a pipeline of {stages} equal stages need at least, so that its bubble (all forward, then all backward) is at most "
        f"{part:.0%} of the step?",
        answer=float(answer),
        whole=True,
        hints=("Solve (Z−1)/(m+Z−1) for m.", "m = (Z−1)·(1/bubble − 1), rounded up."),
        steps=(
            f"m ≥ {stages - 1} · (1/{part} − 1) = {number((stages - 1) * (1 / part - 1))}",
            f"at least {answer}",
        ),
        traps=(
            Trap((stages - 1) / part, "The bubble is a part of the whole step, not of the work."),
            Trap(float(stages), "As many microbatches as stages still wait for nearly half of the step."),
        ),
        check=f'dscale calc "ceil({stages - 1} * (1/{part} - 1))"',
    )


@problem(
    "training",
    "Bytes between stages",
    cases=("training.pp_comm_bytes:bytes_fwd",),
    tokens=(4096, 8192, 2048, 16384),
    d=(8192, 4096, 5120, 16384),
)
def bytes_between_stages(tokens: int, d: int) -> Posed:
    answer = float(array_bytes(parse_array("bf16[B, D]"), {"B": tokens, "D": d}))
    return Posed(
        ask=f"How many bytes does one pipeline stage send to the next for a microbatch of {count(tokens)} tokens, forward, in bf16, with D = {count(d)}?",
        answer=answer,
        dimension="bytes",
        hints=("Only the activations between two layers cross.", "2·B·D."),
        steps=(f"numbers: {tokens} · {d} = {count(tokens * d)}", f"two bytes each: {amount(answer, 'bytes')}"),
        traps=(
            Trap(2 * answer, "Backward sends as much again; forward was asked."),
            Trap(answer / 2, "bf16 has two bytes."),
        ),
        check=f'dscale calc "2 bytes * {tokens} * {d}"',
    )


@problem(
    "training",
    "Tokens that a pod needs",
    cases=("training.dcn_intensity:B_per_pod",),
    chip=("v5p", "v4", "v5e", "v6e", "v3"),
    pods=(1, 2, 4, 8),
)
def tokens_that_a_pod_needs(chip: str, pods: int) -> Posed | None:
    loaded = load_chip(chip)
    if loaded.dcn is None:
        return None
    each = float(pod_tokens(loaded))
    answer = each * pods
    whose = "must each pod have" if pods == 1 else f"must the batch of {pods} pods have"
    peak = loaded.peak("bf16")
    return Posed(
        ask=f"A {chip} does {amount(peak, 'FLOP/s')} in bf16, and each chip sends {amount(loaded.dcn, 'bytes/s')} out of its pod. How many tokens {whose}, so that "
        f"replicas across pods reduce their bf16 gradients under the backward pass? An AllReduce of V bytes over many pods takes 2V/W.",
        answer=answer,
        hints=(
            "All chips of a pod send their own part at once.",
            "B/P = C/W_dcn, as for one chip with W_dcn for its axis.",
        ),
        steps=(
            f"a pod: {number(peak)} / {number(loaded.dcn)} = {count(each)}",
            f"{pods} pod{'s' if pods > 1 else ''}: {count(answer)}",
        ),
        traps=(
            Trap(answer * 2, "An AllReduce is 2V/W, and the two gradients are 8DF bytes of it: the factors cancel."),
            Trap(answer / 3, "A pod has one way out; the three axes are inside it."),
        ),
        check=f'dscale calc "pod_tokens({chip}) * {pods}"',
    )


@problem(
    "training",
    "Whole sequences in a batch",
    cases=("training.q3_setup:seqs",),
    tokens=(3145728, *BATCHES),
    length=(32768, 2048, 4096, 8192, 131072),
)
def sequences_in_a_batch(tokens: int, length: int) -> Posed | None:
    if tokens < 2 * length:
        return None
    answer = float(sequences(tokens, length))
    return Posed(
        ask=f"A batch has {count(tokens)} tokens in sequences of {count(length)}. What is the largest degree of data parallelism that splits no sequence?",
        answer=answer,
        whole=True,
        hints=("Each replica needs at least one whole sequence.", "B/T."),
        steps=(f"{tokens} / {length}", f"= {count(answer)}"),
        traps=(
            Trap(float(tokens), "Splitting a sequence is context parallelism; only whole sequences were asked."),
            Trap(answer * 2, "Half of a sequence is no sequence."),
        ),
        check=f'dscale calc "{tokens} / {length}"',
    )
