"""How long the ranks of a pipeline wait, by schedule."""

import math

from dragonscale.course.closed_forms.rules_of_thumb import stage_utilisation
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.commands import calc
from dragonscale.course.words import amount, number
from dragonscale.training.pipeline_order import timeline
from dragonscale.training.stages import bubble

STAGES = (8, 2, 4, 12, 16)
PIECES = (32, 8, 16, 24, 64, 128)


@problem("pipelines", "The bubble of 1F1B", cases=(), stages=STAGES, pieces=PIECES, schedule=("1f1b", "gpipe"))
def share_of_the_bubble(stages: int, pieces: int, schedule: str) -> Posed:
    works = stage_utilisation(stages, pieces, schedule)
    answer = 1 - works
    name = {"1f1b": "1F1B", "gpipe": "GPipe"}[schedule]
    return Posed(
        ask=f"A pipeline of {stages} equal stages runs {pieces} microbatches a step under {name}. Which part of the step does "
        "each stage wait (the bubble over the whole step, as a number between 0 and 1)?",
        answer=answer,
        hints=("In units of one microbatch, how long is a step, how long does a stage work?", "(P − 1) / (M + P − 1)"),
        steps=(
            f"a stage works for {pieces} microbatches and waits for {stages - 1}",
            f"{stages - 1} / ({pieces} + {stages - 1}) = {number(answer)}",
        ),
        traps=(
            Trap((stages - 1) / pieces, "That is the bubble over the work; the question is over the whole step."),
            Trap(stages / (pieces + stages), "The first microbatch crosses P − 1 borders."),
            Trap(works, "That is the part in which a stage works."),
        ),
        check=calc(f"1 - stage_utilisation({stages}, {pieces})"),
        tolerance=0.01,
    )


@problem("pipelines", "Microbatches for a small bubble", cases=(), stages=STAGES, percent=(10, 2, 4, 5, 8, 20))
def microbatches_for_a_bubble(stages: int, percent: int) -> Posed:
    part = percent / 100
    least = next(m for m in range(1, 10**6) if 1 - stage_utilisation(stages, m) <= part + 1e-12)
    return Posed(
        ask=f"A pipeline has {stages} equal stages. How many microbatches does a step need at least so that the bubble of 1F1B is "
        f"no more than {percent}% of the step?",
        answer=least,
        whole=True,
        hints=("The bubble is (P − 1)/(M + P − 1) of the step.", "M ≥ (P − 1)·(1 − x)/x"),
        steps=(
            f"({stages} − 1)/(M + {stages} − 1) ≤ {part:g}",
            f"M ≥ {stages - 1} · {1 - part:g} / {part:g} = {number((stages - 1) * (1 - part) / part)}, so {least}",
        ),
        traps=(
            Trap(math.ceil((stages - 1) / part), "That is M + P − 1; or the bubble over the work, not over the step."),
            Trap(stages * 1.0, "As many microbatches as stages leave almost half of the step empty."),
        ),
        check=calc(f"ceil(({stages} - 1) * (1 - {part:g}) / {part:g} - 1e-9)"),
    )


@problem(
    "pipelines",
    "Chunks make the bubble smaller",
    cases=(),
    stages=STAGES,
    pieces=PIECES,
    virtual=(4, 2, 3, 5, 6, 8),
)
def interleaved_bubble(stages: int, pieces: int, virtual: int) -> Posed | None:
    if pieces % stages:
        return None
    answer = 1 - stage_utilisation(stages, pieces, "interleaved", virtual)
    plain = 1 - stage_utilisation(stages, pieces)
    return Posed(
        ask=f"{stages} pipeline ranks hold {virtual} chunks of layers each (interleaved 1F1B) and run {pieces} microbatches. Which "
        "part of the step does a rank wait (a number between 0 and 1)?",
        answer=answer,
        hints=("A chunk is passed on after 1/v of a rank's time for a microbatch.", "((P − 1)/v) / (M + (P − 1)/v)"),
        steps=(
            f"the bubble: {stages - 1}/{virtual} = {number((stages - 1) / virtual)} microbatches",
            f"{number((stages - 1) / virtual)} / ({pieces} + {number((stages - 1) / virtual)}) = {number(answer)}; without chunks "
            f"{number(plain)}",
        ),
        traps=(
            Trap(plain, f"That is without chunks; {virtual} of them divide the bubble."),
            Trap(plain / virtual, "The bubble is divided, but the step gets shorter with it."),
        ),
        check=f"dscale calc \"1 - stage_utilisation({stages}, {pieces}, 'interleaved', {virtual})\"",
        tolerance=0.005,
    )


@problem(
    "pipelines",
    "Putting off the weight gradients",
    cases=(),
    stages=(8, 4, 6, 12, 16),
    schedule=("zb-h1", "dualpipe", "dualpipev"),
    forward=(10, 4, 6, 8, 14, 20),
    backward=(20, 9, 12, 18, 30),
    weight=(9, 4, 5, 6, 8, 10),
)
def zero_bubble(stages: int, schedule: str, forward: int, backward: int, weight: int) -> Posed | None:
    if not (forward < backward and weight * 2 <= backward and weight <= forward):
        return None
    f, b, w = (one * 1e-3 for one in (forward, backward, weight))
    answer = bubble(schedule, stages, 1, f, b, w)
    plain = bubble("1f1b", stages, 1, f, b, w)
    if answer <= 0:
        return None
    formula, name = {
        "zb-h1": ("(P − 1)·(f + b − 2w)", "ZB-H1, which fills the wait with the weights' part of the backward pass"),
        "dualpipe": ("(P/2 − 1)·(f + 2b − 3w)", "DualPipe, which feeds microbatches from both ends"),
        "dualpipev": ("(P − 1)·(f + 2b − 3w)/2", "DualPipeV, DualPipe folded in the shape of a V"),
    }[schedule]
    return Posed(
        ask=f"On each of {stages} ranks a microbatch takes f = {forward} ms forward and b = {backward} ms backward, of which w = "
        f"{weight} ms are for gradients of weights, which nothing waits for. How long does a rank wait in a step under {name}?",
        answer=answer,
        dimension="s",
        hints=("The gradients of weights can be worked out later, in the gaps.", formula),
        steps=(
            f"1F1B would wait (P − 1)·(f + b) = {amount(plain, 's')}",
            f"{formula} with P = {stages}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(plain, "That is 1F1B, with the backward pass in one piece."),
            Trap(
                answer / (stages - 1 if schedule != "dualpipe" else max(stages / 2 - 1, 0.5)),
                "That is one turn of many.",
            ),
        ),
        check=f"dscale calc \"bubble('{schedule}', {stages}, 1, {forward}ms, {backward}ms, {weight}ms)\"",
    )


@problem(
    "pipelines",
    "Ticks of a schedule",
    cases=(),
    stages=(4, 2, 3, 5, 6, 8),
    pieces=(8, 4, 6, 10, 12, 16),
    schedule=("1f1b", "gpipe"),
)
def ticks_of_a_schedule(stages: int, pieces: int, schedule: str) -> Posed | None:
    if pieces < stages:
        return None
    answer = len(timeline(schedule, stages, 1, pieces))
    name = {"1f1b": "1F1B", "gpipe": "GPipe"}[schedule]
    return Posed(
        ask=f"Every forward and every backward piece of a microbatch takes one tick on each of {stages} stages. How many ticks "
        f"does a step of {pieces} microbatches take under {name}, from the first piece to the last?",
        answer=answer,
        whole=True,
        hints=("What does the first stage do, and how long does it wait?", "2·(M + P − 1)"),
        steps=(
            f"a stage does 2 · {pieces} = {2 * pieces} pieces and waits {2 * (stages - 1)} ticks",
            f"{2 * pieces} + {2 * (stages - 1)} = {answer}",
        ),
        traps=(
            Trap(2.0 * pieces, "The pipeline must fill and drain too."),
            Trap(2.0 * pieces * stages, "Stages work at the same time."),
            Trap(float(2 * pieces + stages - 1), "It fills going forward and drains going backward: twice."),
        ),
        check=calc(f"2 * ({pieces} + {stages} - 1)"),
    )
