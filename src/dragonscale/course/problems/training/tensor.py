"""Problems on tensor parallelism: how many ways, how wide, which power of two."""

import math

from dragonscale.course.closed_forms.rooflines import wire_intensity
from dragonscale.course.closed_forms.training_limits import tp_degree, tp_width
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.training.torus import TPUS, WIDTHS, alpha, torus
from dragonscale.course.words import count, number


@problem(
    "training",
    "Ways that tensor parallelism can hide",
    cases=("training.tp_max_gemma7b:Y_max_true_F",),
    chip=TPUS,
    width=(49152, *WIDTHS),
    axes=(1, 2),
)
def ways_of_tensor_parallelism(chip: str, width: int, axes: int) -> Posed | None:
    loaded = torus(chip, axes)
    if loaded is None:
        return None
    answer, ratio = float(tp_degree(loaded, width, axes)), wire_intensity(loaded)
    return Posed(
        ask=f"{alpha(loaded)}. Up to which degree does tensor parallelism over {axes} ax{'i' if axes == 1 else 'e'}s stay bound by compute, for a layer "
        f"with F = {count(width)} (two bf16 matrices)? Not rounded.",
        answer=answer,
        hints=("4BDF/(Y·C) against 4BD/(M·W); the batch cancels.", "Y = M·F/(C/W)."),
        steps=(f"Y = {axes} · {width} / {number(ratio)}", f"= {number(answer)}"),
        traps=(
            Trap(answer / 2, "W counts both directions of an axis."),
            Trap(answer * 2 if axes == 1 else answer / axes, "How many axes carry it?"),
        ),
        check=f'dscale calc "tp_degree({chip}, width={width}, axes={axes})"',
    )


@problem(
    "training",
    "The power of two to take",
    cases=("training.tp_max_gemma7b:practical",),
    chip=TPUS,
    width=(49152, *WIDTHS, 50000, 20480),
)
def power_of_two_of_tensor_parallelism(chip: str, width: int) -> Posed | None:
    loaded = torus(chip, 1)
    assert loaded is not None
    most, ratio = float(tp_degree(loaded, width)), wire_intensity(loaded)
    if most < 2:
        return None
    answer = 2.0 ** math.floor(math.log2(most))
    return Posed(
        ask=f"{alpha(loaded)}. Which is the largest power of two of tensor parallelism over one axis that hides its communication, for F = {count(width)}?",
        answer=answer,
        whole=True,
        hints=("First the degree that is not rounded: F/(C/W).", "Then the power of two at or below it."),
        steps=(f"F/(C/W) = {width}/{number(ratio)} = {number(most)}", f"the power of two below: {count(answer)}"),
        traps=(
            Trap(2 * answer, "That is above the limit, and so bound by communication."),
            Trap(answer / 2, "There is room for twice as many."),
        ),
        check=f'dscale calc "2^floor(log2(tp_degree({chip}, width={width})))"',
    )


@problem(
    "training",
    "How wide a layer must be",
    cases=(),
    chip=TPUS,
    ways=(8, 4, 16, 2, 32),
    axes=(1, 2),
)
def width_that_tensor_parallelism_needs(chip: str, ways: int, axes: int) -> Posed | None:
    loaded = torus(chip, axes)
    if loaded is None:
        return None
    answer, ratio = float(tp_width(loaded, ways, axes)), wire_intensity(loaded)
    return Posed(
        ask=f"{alpha(loaded)}. How large must F be at least, so that {ways}-way tensor parallelism over {axes} ax{'i' if axes == 1 else 'e'}s hides its "
        f"communication (a layer of two bf16 matrices)?",
        answer=answer,
        hints=("Turn Y < M·F·W/C around.", "F = Y·(C/W)/M."),
        steps=(f"F = {ways} · {number(ratio)} / {axes}", f"= {count(answer)}"),
        traps=(
            Trap(answer * 2, "W counts both directions; or are there two axes?"),
            Trap(answer / ways, "That is for one way."),
        ),
        check=f'dscale calc "tp_width({chip}, degree={ways}, axes={axes})"',
    )
