"""What a request waits for: its first token, the next ones, its prompt beside others."""

from typing import TYPE_CHECKING

from dragonscale.app.explain.formulas import FormulaLine
from dragonscale.app.serve.sheet import error_text
from dragonscale.physics.units import render
from dragonscale.web.amounts import amount
from dragonscale.web.derivations.pieces import Piece, chip_sources, facts, formulas, row, step
from dragonscale.web.derivations.profiles import USED, kernel_sentence

if TYPE_CHECKING:
    from dragonscale.web.derivations.serving import ServeNumbers

DOCS, TIME_DOCS = ("serving", "why"), ("validation-serving", "what-is-in-a-first-token")


def ttft_facts(of: "ServeNumbers") -> Piece:
    state, one = of.state, of.one
    total = amount(one.ttft_s, "s", "ttft_s")
    rows = [
        row("front end", amount(float(state.front), "s"), "tokenising and scheduling, of the engine"),
        row("the iteration under way", amount(float(state.under_way), "s"), "it comes while another runs"),
        row("prompts before it", amount(float(state.waiting), "s"), "mean of a closed loop with this batch"),
        row("its own prefill", amount(float(state.prefill), "s", "prefill_s")),
    ]
    sentence = f"Mean seconds from a request's arrival to its first token, with {of.where}."
    text = (
        "A steady state: every request that ends is followed by another. `dscale simulate` gives percentiles under "
        "traffic."
    )
    kernels, sources = kernel_sentence(of.chip, "", ("matmul", "attention"))
    return facts(
        "Time to first token",
        sentence,
        total,
        steps=[step("What it waits for", rows, total, text)],
        compared={"rows": [], "text": kernels},
        error=of.banded(one.ttft_s, one.ttft_low_s, one.ttft_high_s),
        sources=[*sources, *chip_sources(of.chip, USED)],
        docs=TIME_DOCS,
    )


def ttft_formulas(of: "ServeNumbers") -> Piece:
    state = of.state
    parts = [float(one) for one in (state.front, state.under_way, state.waiting, state.prefill)]
    line = FormulaLine(
        "TTFT",
        "t_front + t_iteration + t_queue + t_prefill",
        " + ".join(f"{one:.4g}" for one in parts),
        render(sum(parts), "s", 4),
        sum(parts),
        "s",
    )
    return formulas([line])


def tpot_facts(of: "ServeNumbers") -> Piece:
    state, one = of.state, of.one
    total = amount(one.tpot_s, "s", "tpot_s")
    met = float(state.added * state.met) / max(float(state.output) - 1, 1)
    per = "a step over the tokens it yields" if one.drafts else "a step gives each sequence a token"
    rows = [
        row("its own decode step", amount(float(state.decode), "s", "" if one.drafts else "decode_step_s"), per),
        row(
            "prompts of others between its steps",
            amount(met, "s"),
            f"{float(state.met):,.3g} of them while it decodes",
        ),
    ]
    sentence = f"Mean seconds between a request's output tokens, with {of.where}."
    return facts(
        "Time per output token",
        sentence,
        total,
        steps=[step("Put together from", rows, total)],
        error=of.banded(one.tpot_s, one.tpot_low_s, one.tpot_high_s),
        docs=DOCS,
        sources=[{"text": "Worked out by the planner's steady state from the iterations below.", "url": ""}],
    )


def tpot_formulas(of: "ServeNumbers") -> Piece:
    state = of.state
    values = [float(one) for one in (state.decode, state.added, state.met, state.output)]
    put_in = "{:.4g} + {:.4g}*{:.4g}/({:.6g} - 1)".format(*values)
    line = FormulaLine("TPOT", "d + p*met/(O - 1)", put_in, render(of.one.tpot_s, "s", 4), of.one.tpot_s, "s")
    note = (
        "d: seconds of a decode step; p: what a prompt adds to the iterations; met: prompts of others that it meets; "
        "O: output tokens."
    )
    return formulas([line], notes=[note])


def beside_facts(of: "ServeNumbers") -> Piece:
    one = of.one
    alone = sum(term.expected_s for term in one.prefill_terms)
    total = amount(one.prefill_s, "s", "prefill_s")
    rows = [
        row("a prompt alone", amount(alone, "s", "prefill_alone_s")),
        row(
            "chunks",
            amount(one.prefill_chunks, "count", "", f"{one.prefill_chunks}"),
            f"of up to {one.chunk_tokens:,} tokens",
        ),
        row("beside the others", total),
    ]
    sentence = "A whole prompt's prefill while the others decode: its chunks share iterations with their steps."
    return facts(
        "Prefill beside others",
        sentence,
        total,
        steps=[step("Beside", rows)],
        docs=TIME_DOCS,
        error=error_text(of.report, one),
        sources=[{"text": "Worked out by the planner's steady state from the iterations of the engine.", "url": ""}],
    )
