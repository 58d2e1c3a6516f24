"""Problems on speculative sampling: what a loop yields and costs, how many tokens to draft."""

from dragonscale.course.closed_forms.decode_floor import critical_batch
from dragonscale.course.closed_forms.speculation import best_drafts, free_drafts, kept_tokens, loop_seconds, seconds_for
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import CHIPS, rates_told
from dragonscale.course.words import amount, number
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines import rates_of
from dragonscale.serving.speculation import tokens_per_loop


@problem(
    "inference",
    "Tokens of one loop",
    cases=("inference.appD_greedy_rule:mismatch_at_3",),
    drafts=(4, 3, 5, 6, 7, 8),
    wrong=(3, 1, 2, 4, 5, 6, 7, 0),
)
def tokens_kept_of_a_draft(drafts: int, wrong: int) -> Posed | None:
    if wrong > drafts:
        return None
    answer = float(kept_tokens(drafts, wrong or None))
    said = f"the first wrong one is number {wrong}" if wrong else "all of them are right"
    traps = [Trap(float(drafts if wrong != drafts else drafts + 1), "Count what is kept, and the target's own token.")]
    if answer > 1:
        traps.append(
            Trap(answer - 1, "The pass that verifies gives one token of its own: the correction, or one more.")
        )
    return Posed(
        ask=f"A small model drafts {drafts} tokens, greedily; the large one verifies them in one pass and {said}. How "
        "many tokens does the loop yield?",
        answer=answer,
        whole=True,
        hints=(
            "What is verified up to the first mistake is kept.",
            "j − 1 kept and 1 corrected; K + 1 where none is wrong.",
        ),
        steps=(
            f"kept drafts: {drafts if not wrong else wrong - 1}",
            f"and one token of the target: {answer:g}",
        ),
        traps=tuple(one for one in traps if one.value != answer),
        check=f'dscale calc "kept_tokens({drafts}{f", first_wrong={wrong}" if wrong else ""})"',
    )


@problem(
    "inference",
    "Tokens of a loop on average",
    chance=(0.75, 0.6, 0.7, 0.8, 0.85, 0.9, 0.5),
    drafts=(3, 2, 4, 5, 6, 8),
)
def tokens_of_a_loop(chance: float, drafts: int) -> Posed:
    answer = float(tokens_per_loop(chance, drafts))
    powers = " + ".join(f"{chance:g}^{k}" for k in range(drafts + 1))
    return Posed(
        ask=f"Each of {drafts} drafted tokens is right with a chance of {chance:.0%} if those before it were. How many "
        "tokens does a loop of drafting and "
        "verifying yield on average, the target's own token included?",
        answer=answer,
        tolerance=0.01,
        hints=("The k-th draft counts only if the first k are all right.", "1 + a + a² + … + a^K."),
        steps=(f"the target's token, then the first draft, and so on: {powers}", f"= {number(answer)}"),
        traps=(
            Trap(1 + chance * drafts, "After a wrong draft the rest is thrown away."),
            Trap(answer - 1, "The target adds a token of its own."),
        ),
        check=f'dscale calc "tokens_per_loop({chance:g}, {drafts})"',
    )


@problem(
    "inference",
    "Time for an answer with drafts",
    target=(14.1e-3, 10e-3, 20e-3, 30e-3),
    draft=(2.06e-3, 1e-3, 3e-3),
    drafts=(3, 2, 4, 5, 7),
    chance=(0.75, 0.6, 0.7, 0.8, 0.9),
    tokens=(128, 256, 512),
)
def time_with_drafts(target: float, draft: float, drafts: int, chance: float, tokens: int) -> Posed:
    loop, kept = float(loop_seconds(target, draft, drafts)), float(tokens_per_loop(chance, drafts))
    answer = float(seconds_for(tokens, loop, kept))
    return Posed(
        ask=f"A pass of the target takes {amount(target, 's')}, whatever it verifies; drafting a token takes "
        f"{amount(draft, 's')}. With {drafts} drafts a loop, each "
        f"right with a chance of {chance:.0%} if those before it were, how long do {tokens} tokens take?",
        answer=answer,
        dimension="s",
        hints=("Time of a loop over tokens of a loop.", "n · (t + K·d) / (1 + a + … + a^K)."),
        steps=(
            f"a loop: {amount(target, 's')} + {drafts}·{amount(draft, 's')} = {amount(loop, 's')}",
            f"yields {number(kept)} tokens",
            f"{tokens} / {number(kept)} · {amount(loop, 's')} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(tokens * target, "That is without drafts."),
            Trap(float(seconds_for(tokens, loop, drafts + 1)), "Not every draft is accepted."),
            Trap(float(seconds_for(tokens, target, kept)), "Drafting takes time too."),
        ),
        check=f'dscale calc "{tokens} / tokens_per_loop({chance:g}, {drafts}) * ({amount(target, "s")} + {drafts} * '
        f'{amount(draft, "s")})"',
    )


@problem(
    "inference",
    "What a draft costs",
    times=((14.1e-3, 28.5e-3), (10e-3, 17e-3), (20e-3, 31e-3), (25e-3, 32.5e-3), (8e-3, 18e-3)),
    drafts=(7, 4, 5, 6, 8),
)
def cost_of_a_draft(times: tuple[float, float], drafts: int) -> Posed:
    plain, loop = times
    answer = (loop - plain) / drafts
    assert abs(float(loop_seconds(plain, answer, drafts)) - loop) < 1e-12
    return Posed(
        ask=f"A decode step takes {amount(plain, 's')}; a loop that drafts {drafts} tokens and verifies them takes "
        f"{amount(loop, 's')}. How much does each drafted "
        "token add?",
        answer=answer,
        dimension="s",
        hints=("The verifying pass takes as long as a plain step.", "(t_K − t_0)/K."),
        steps=(
            f"{amount(loop, 's')} − {amount(plain, 's')} = {amount(loop - plain, 's')}",
            f"over {drafts}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(loop / drafts, "The pass that verifies is no draft."),
            Trap((loop - plain) / (drafts + 1), "The loop drafts K tokens; the target's own token costs nothing more."),
        ),
        check=f'dscale calc "({amount(loop, "s")} - {amount(plain, "s")}) / {drafts}"',
    )


@problem(
    "inference",
    "How many tokens to draft",
    target=(14.1e-3, 10e-3, 20e-3, 30e-3),
    draft=(2.06e-3, 1e-3, 3e-3, 1.5e-3),
    chance=(0.75, 0.6, 0.7, 0.8, 0.85, 0.9),
)
def best_number_of_drafts(target: float, draft: float, chance: float) -> Posed | None:
    answer = best_drafts(target, draft, chance)
    if not 1 <= answer <= 12:
        return None

    def each(drafts: int) -> float:
        return float(seconds_for(1, loop_seconds(target, draft, drafts), tokens_per_loop(chance, drafts)))

    return Posed(
        ask=f"A pass of the target takes {amount(target, 's')}, a drafted token {amount(draft, 's')}; each draft is "
        f"right with a chance of {chance:.0%} if those before "
        "it were. How many tokens should a loop draft for the least time per token?",
        answer=float(answer),
        whole=True,
        hints=("Try one number after the other.", "(t + K·d)/(1 + a + … + a^K), least over K."),
        steps=tuple(f"{k} drafts: {amount(each(k), 's')} a token" for k in (answer - 1, answer, answer + 1)),
        traps=(
            Trap(answer + 1.0, "One fewer is faster."),
            *((Trap(answer - 1.0, "One more is still faster."),) if answer > 1 else ()),
        ),
        check=f'dscale calc "best_drafts({amount(target, "s")}, {amount(draft, "s")}, {chance:g})"',
    )


@problem(
    "inference",
    "Drafts that cost nothing to verify",
    batch=(48, 8, 16, 24, 32, 64),
    weights=("bf16", "int8"),
    chip=CHIPS,
)
def drafts_for_free(batch: int, weights: str, chip: str) -> Posed | None:
    machine = load_chip(chip)
    critical = float(critical_batch(rates_of(machine), weights))
    answer = float(free_drafts(batch, critical))
    if answer < 0.3:
        return None
    return Posed(
        ask=f"{batch} sequences decode; weights are {weights}, matmuls bf16. {rates_told(machine)} How many drafted "
        "tokens a sequence can be verified before "
        "the matmuls take longer than loading their weights (not rounded)?",
        answer=answer,
        hints=(
            "Verifying K drafts puts K + 1 tokens of a sequence into a step.",
            "B·(K + 1) = B_crit: K = B_crit/B − 1.",
        ),
        steps=(
            f"critical batch: {number(critical)} tokens",
            f"{number(critical)} / {batch} − 1 = {number(answer)}",
        ),
        traps=(
            Trap(critical / batch, "The token that would be decoded anyway counts too."),
            Trap(critical - batch, "Every sequence has drafts of its own."),
        ),
        check=f'dscale calc "critical_batch({chip}, weights={weights}) / {batch} - 1"',
    )
