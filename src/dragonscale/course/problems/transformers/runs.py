"""Problems on runs: FLOPs of training, with recompute, and the utilisation they mean."""

from dragonscale.course.closed_forms.chip_parts import available_flops, utilisation
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, number
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines.counts import model_flops


@problem(
    "transformers",
    "FLOPs of a training run",
    cases=("transformers.q7_model_flops:flops",),
    params=(37e9, 7e9, 13e9, 70e9, 405e9),
    tokens=(14.8e12, 1e12, 2e12, 15e12),
)
def flops_of_a_run(params: float, tokens: float) -> Posed:
    answer = float(model_flops(params, tokens))
    return Posed(
        ask=f"How many FLOPs is training a model on {number(tokens)} tokens, if each token uses {number(params)} parameters? "
        f"Attention's dot products left out.",
        answer=answer,
        dimension="FLOP",
        hints=("2 forward, 4 backward.", "6 · parameters · tokens."),
        steps=(f"6 · {number(params)} · {number(tokens)}", f"= {number(answer)}"),
        traps=(
            Trap(answer / 3, "That is forward alone."),
            Trap(answer * 4 / 3, "8 FLOPs are with the forward pass recomputed; that was not said."),
        ),
        check=f'dscale calc "model_flops({params:g}, {tokens:g})"',
    )


@problem(
    "transformers",
    "FLOPs with every block recomputed",
    params=(70e9, 7e9, 13e9, 37e9, 405e9),
    tokens=(15e12, 1e12, 2e12, 14.8e12),
)
def flops_with_recompute(params: float, tokens: float) -> Posed:
    answer = float(model_flops(params, tokens, recomputed=1))
    return Posed(
        ask=f"Only each block's input is kept, so the whole forward pass is done again in the backward pass. How many FLOPs do the chips do to train "
        f"{number(params)} parameters on {number(tokens)} tokens?",
        answer=answer,
        dimension="FLOP",
        hints=("How many passes of 2 FLOPs a parameter and token are there?", "2 + 2 + 4 = 8 · parameters · tokens."),
        steps=(
            f"forward 2, again 2, backward 4: 8 · {number(params)} · {number(tokens)}",
            f"= {number(answer)}",
        ),
        traps=(
            Trap(answer * 6 / 8, "The forward pass runs twice now."),
            Trap(answer * 12 / 8, "Only the forward pass is repeated, not the backward one."),
        ),
        check=f'dscale calc "model_flops({params:g}, {tokens:g}, recomputed=1)"',
    )


@problem(
    "transformers",
    "Utilisation of a run",
    cases=("transformers.q7_mfu:mfu",),
    run=(
        (3.2856e24, "h100", 1.5197e25),
        (6.3e24, "v5p", 0.0),
        (3.8e25, "h100", 0.0),
        (1e24, "v6e", 0.0),
    ),
    chips=(2048, 1024, 4096, 8960, 16384),
    days=(50.0, 30.0, 60.0, 100.0),
)
def utilisation_of_a_run(run: tuple[float, str, float], chips: int, days: float) -> Posed | None:
    flops, chip, given = run
    peak = load_chip(chip).peak("bf16")
    available = given or float(available_flops(chips, days * 86400, peak))
    answer = float(utilisation(flops, available))
    if not 0.05 < answer < 0.8:
        return None
    told = (
        f"its chips could have done {number(given, 5)} FLOPs in that time at their peak"
        if given
        else f"it took {days:g} days on {chips:,} chips of {amount(peak, 'FLOP/s')} each"
    )
    return Posed(
        ask=f"A run was {number(flops, 5)} FLOPs of model, and {told}. What was its MFU, as a fraction or in percent?",
        answer=answer,
        hints=("Useful FLOPs over those available.", "FLOPs of the model / (chips · seconds · peak)."),
        steps=(
            f"available: {number(available, 5)} FLOPs",
            f"MFU: {number(flops, 5)} / {number(available, 5)} = {number(answer, 3)}",
        ),
        traps=(
            Trap(answer * 8 / 6, "Recomputed FLOPs are not useful ones; MFU counts 6 a parameter."),
            Trap(answer / 3, "Training is three times the forward pass."),
        ),
        check=f'dscale calc "{flops:g} FLOP / ({available!r} FLOP)"',
    )
