"""Where the numbers of a serving configuration come from: its bounds as formulas, the numbers put in, its limits solved.

The formulas are those of `dragonscale.serving.limits`, `limits_fleet` and `steady`, run on symbols. What is expected of
the deployment, through profiles of kernels and the engine's constants, is told beside them.
"""

from typing import Any

from dragonscale.errors import InputError
from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.transformer import count_parameters, kv_bytes_per_token
from dragonscale.numbers import Number
from dragonscale.reports.explain.formulas import Explanation, Line, formula_line
from dragonscale.reports.serve.advice import unfit
from dragonscale.reports.serve.config import deployed, first
from dragonscale.reports.serve.extras import PLAIN, solved_limits
from dragonscale.reports.serve.question import Asked
from dragonscale.reports.serve.search import ranked, search
from dragonscale.roofline import Rates, symbol
from dragonscale.roofline.crossover import exact
from dragonscale.serving.capacity import capacity
from dragonscale.serving.frontier import Config
from dragonscale.serving.limits import decode_times, linear_cost, throughput
from dragonscale.serving.limits_fleet import free_bytes, usd_per_million
from dragonscale.serving.limits_found import Limit
from dragonscale.serving.steady import steady_state
from dragonscale.units import render


def explain_serve(asked: Asked) -> Explanation:
    """Explain the plan and batch that were given, or the best ones."""
    configs = search(asked)
    if not configs:
        raise InputError(" ".join(unfit(asked)[:2]))
    config = ranked(asked, configs)[0]
    where = f"{asked.model.name} on {config.piece}, {config.plan}, batch {config.batch}"
    limits = [_told(limit, config) for limit in solved_limits(asked, config)]
    return Explanation(where, _lines(asked, config), limits, _notes(asked, config))


def _letters(asked: Asked, config: Config) -> dict[str, float]:
    """What the letters of the formulas stand for here."""
    plan, chip = config.plan, config.piece.chip
    counts = count_parameters(asked.model)
    known = {
        "B": config.batch,
        "S": asked.ask.prompt + asked.ask.output / 2,
        "T": asked.ask.new,
        "O": asked.ask.output,
        "N": config.chips,
        "P": counts.total,
        "c": kv_bytes_per_token(asked.model, plan.kv),
        "C": chip.peak(PLAIN.get(plan.compute, plan.compute)),
        "W": chip.bandwidth("hbm"),
        "H": chip.hbm.capacity,
        "m": asked.engine.memory.share,
        "r": first(capacity(deployed(asked, config)).working) + asked.engine.memory.reserve_bytes,
    }
    known |= {"A": counts.active} if counts.active != counts.total else {}
    known |= {"usd": float(chip.price)} if chip.price is not None else {}
    return {name: float(value) for name, value in known.items()}


def _lines(asked: Asked, config: Config) -> list[Line]:
    known = _letters(asked, config)
    of: dict[str, Any] = {name: symbol(name) for name in known}
    values = {of[name]: value for name, value in known.items()}
    weights, compute = (PLAIN.get(name, name) for name in (config.plan.weights, config.plan.compute))
    rates = Rates({("matrix", compute): of["C"]}, {"hbm": of["W"]})
    active: Number = of.get("A", of["P"])
    step = decode_times(
        of["B"], of["c"] * of["S"], of["P"], of["N"], rates, weights=weights, compute=compute, active=active
    )
    flops = linear_cost(of["T"], of["P"], weights, compute, active).flops[("matrix", compute)]
    prefill = flops / (of["N"] * of["C"])
    d, p = symbol("d"), symbol("p")
    lower = exact(step.lower)
    given = values | {d: lower.subs(values), p: exact(prefill).subs(values)}
    state = steady_state(of["B"], d, p, p, of["O"])
    room = free_bytes(of["N"] * of["H"] * of["m"], dtype_bytes(weights) * of["P"], of["N"] * of["r"])
    lines = [
        formula_line("d, a decode step at best (products or weights, then caches)", lower, values, "s"),
        formula_line("p, a prompt's prefill at best (compute)", exact(prefill), values, "s"),
        formula_line(
            "TPOT at best, prompts between the steps", exact(state.decode + p * of["B"] / (of["O"] - 1)), given, "s"
        ),
        formula_line("requests/s at best", exact(state.requests), given, "count/s"),
        formula_line(
            "tokens/s per chip while decoding, at best", exact(throughput(of["B"], d, of["N"])), given, "count/s"
        ),
        formula_line("largest batch by bytes", exact(room / (of["c"] * (of["T"] + of["O"]))), values, "count"),
    ]
    if "usd" in of:
        cost = usd_per_million(state.requests * of["O"], of["N"], of["usd"])
        lines.append(formula_line("dollars per million output tokens at best", exact(cost), given, "USD"))
    return lines


def _told(limit: Limit, config: Config) -> str:
    formula = str(limit.formula).replace("**", "^")
    text = f"{limit.name}: {formula} = {limit.value:,.4g} {limit.counts}"
    here = {"critical batch": config.batch, "prefill ways": config.plan.tensor, "decode ways": config.plan.tensor}
    return f"{text} (here {here[limit.name]:,})" if limit.name in here else text


def _notes(asked: Asked, config: Config) -> list[str]:
    chip, state = config.piece.chip, config.state
    expected = (
        f"Expected of {asked.engine.name}: a decode step of {render(config.decode_s, 's')}, "
        f"{config.decode_s / config.lower_s:.2f} times its bound of {render(config.lower_s, 's')} as sharded; TPOT "
        f"{render(float(state.tpot), 's')}, {config.tokens_per_chip:,.0f} tokens/s per chip, largest batch {config.most:,}."
    )
    return [
        f"C = {render(chip.peak(PLAIN.get(config.plan.compute, config.plan.compute)), 'FLOP/s')}, "
        f"W = {render(chip.bandwidth('hbm'), 'bytes/s')}, H = {render(chip.hbm.capacity, 'bytes')} of {chip.title}",
        "B sequences of S cached tokens, prompts of T new tokens, outputs of O; N chips; P parameters"
        + (" (A used by a token)" if "A" in _letters(asked, config) else "")
        + "; c bytes of cache per token; m the part of memory used, r bytes of each chip reserved",
        expected,
    ]
