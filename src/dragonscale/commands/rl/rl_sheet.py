"""The answer to `dscale rl` laid out: the best way in a few lines, its phases, the other ways."""

import math
import shlex

from dragonscale.blocks.sheet import Block, Grid, NextStep, Prose, Sheet, Title, Verbatim, amount, facts
from dragonscale.commands.grids import grid
from dragonscale.commands.questions.flag import written
from dragonscale.commands.rl.rl_records import RlPlanRow, RlReport, RlRunRow
from dragonscale.simulation.rl.frameworks import framework, tables

APART = 0.1
"""How far half of a framework's steps are from what is expected where the answer says it at once."""
FEW = 3
"""Other ways that are shown without `--explain`."""


def rl_sheet(report: RlReport, detail: bool) -> Sheet:
    """The whole answer."""
    aside = f"{report.prompts:,} prompts x {report.samples:,} answers, prompts of {report.prompt:,} tokens, answers of "
    aside += f"{report.mean_output:,.0f} on average and {report.output:,} at most"
    title = Title(f"{report.algorithm.upper()} of {report.model} on {report.slice}", aside)
    best = report.best
    if best is None:
        return Sheet((title, Prose(_nothing(report), "bad")))
    blocks: list[Block] = [title, _summary(report, best)]
    others = report.plans if detail else report.plans[: FEW + 1]
    seen = {one.mode for one in others}  # and the first of every other mode
    others = [*others, *{one.mode: one for one in reversed(report.plans) if one.mode not in seen}.values()]
    if detail:
        blocks.append(grid("rl-phases", best.phases))
    if len(others) > 1:
        blocks.append(_others(others))
    blocks += [Verbatim(text.rstrip("\n")) for text in report.files.values()]
    return Sheet((*blocks, *_next(report, best)))


def _summary(report: RlReport, best: RlPlanRow) -> Block:
    shared = best.mode == "colocated"
    own = report.slice.partition(":")[0]
    other = "" if best.rollout_chip == own else f" {best.rollout_chip}"
    where = (
        f"on all {best.train_chips:,} chips in turns"
        if shared
        else f"{best.train_chips:,} chips train, {best.rollout_chips:,}{other} generate"
    )
    phases = [one for one in best.phases if one.seconds > 0]
    told = ", ".join(f"{one.name} {amount(one.seconds, 's')}{'' if one.exposed_s else ' (hidden)'}" for one in phases)
    tail = best.tail_s / max(best.phase("generation"), 1e-9)
    bound = report.bound_by + (f"; the last 2% of answers take {tail:.0%} of generation" if tail >= 0.1 else "")
    helps = "; ".join(f"{one.what}: {one.gain:+.0%} tokens/s" for one in report.changes if one.gain > 0)
    slower = "; ".join(f"{one.what}: {one.gain:.0%} tokens/s" for one in report.changes if one.gain <= 0)
    moved = f", {amount(best.offloaded_bytes, 'bytes')} go to the host in between" if best.offloaded_bytes else ""
    engine = best.engine.partition(",")[0]  # without what differs from its usual settings
    band = f"{amount(best.step_low_s, 's')} to {amount(best.step_high_s, 's')}"
    alone = abs(best.likely_s / best.step_s - 1) >= APART
    alone = f"; its phases alone take {amount(best.step_s, 's')}" if alone else ""
    return facts(
        ("plan", f"{best.mode}, {where}, {best.stack} (staleness {best.staleness:g})", "key"),
        ("trainer", f"{best.train} ({best.train_stack})"),
        ("engine", f"{best.replicas:,} x {best.rollout} ({engine}), weights sent: {best.transfer}"),
        (
            "step",
            f"{amount(best.likely_s, 's')} expected ({band}), {best.likely_tokens:,.0f} tokens/s/chip{alone}",
            "key",
        ),
        (
            "memory",
            f"trainer {amount(best.train_hbm_bytes, 'bytes')} of {amount(best.hbm_limit_bytes, 'bytes')}"
            f"{', tight' if best.tight else ''}, engine {amount(best.rollout_hbm_bytes, 'bytes')} of "
            f"{amount(best.rollout_limit_bytes, 'bytes')}{moved}",
            "warn" if best.tight else "",
        ),
        ("cost", _cost(best, own)),
        ("bound by", bound, "key"),
        ("would help", helps) if helps else None,
        ("others", slower) if slower else None,
        ("phases", told),
        ("simulated", _simulated(report.run), "key") if report.run else None,
        ("error", _error(best.stack, {one.stack for one in report.plans})),
    )


def _cost(best: RlPlanRow, own: str) -> str:
    paid = best.cost_usd_per_step
    if paid is not None:
        paid *= best.likely_s / best.step_s
        return f"${paid:,.2f} a step, ${paid * 1000:,.0f} for 1,000"
    both = dict.fromkeys((own, best.rollout_chip))
    return f"not every chip has a known price: --price {','.join(f'{one}=$2/h' for one in both)} says it"


def _simulated(run: RlRunRow) -> str:
    lost = f", {run.failures:,} failures ({run.again:,} answers begun again)" if run.failures or run.again else ""
    return (
        f"{run.steps:,} steps in {run.hours:,.1f} h, {amount(run.step_s, 's')} each (9 of 10 within "
        f"{amount(run.p90_step_s, 's')}); weights {run.staleness_mean:.1f} steps old on average, {run.staleness_max} "
        f"at most; {run.queue_mean:,.0f} answers queued; engine works {run.engine_busy:.0%} of the time, trainer "
        f"{run.trainer_busy:.0%}{lost}"
    )


def _error(stack: str, stacks: set[str]) -> str:
    known = framework(stack).errors
    whose = f"steps of {stack}" if stack in tables()["errors"] else f"steps (none of {stack})"
    others = ", ".join(f"{1 + framework(name).errors.middle:.2f} of {name}" for name in sorted(stacks - {stack}))
    band = f"{1 + known.low:.2f} to {1 + known.high:.2f} times their phases"
    text = f"of {known.runs} published {whose} four in five took {band}"
    usual = f"{1 + known.middle:.2f} times in the middle, which is the step expected here"
    return f"{text}, {usual}{f' ({others})' if others else ''}."


def _others(plans: list[RlPlanRow]) -> Grid:
    own = {
        "chips": lambda one: f"{one.train_chips}" + (f"+{one.rollout_chips}" if one.mode != "colocated" else ""),
        "fits": lambda one: "yes" if one.feasible else "no",
    }
    return grid("rl-plans", plans, own=own)


def _nothing(report: RlReport) -> str:
    if not report.plans or math.isinf(report.plans[0].hbm_bytes):
        why = "no plan of the trainer or the engine leaves room"
    else:
        row = report.plans[0]
        need, limit = amount(row.hbm_bytes, "bytes"), amount(row.hbm_limit_bytes, "bytes")
        why = f"the nearest, {row.mode}, needs {need} of {limit} on a chip"
    if getattr(report.asked, "bare", False):
        return f"No slice that was tried holds the step, the largest {report.slice}; there {why}."
    return f"Nothing fits {report.slice}: {why}{_larger(report)}."


def _larger(report: RlReport) -> str:
    return f"; {report.fits_on} holds it" if report.fits_on else "; none of the larger slices that were tried holds it"


def _next(report: RlReport, best: RlPlanRow) -> list[Block]:
    question = getattr(report.asked, "question", None)
    if question is None:
        return []
    model = shlex.quote(written(question.model))
    words = (
        f"dscale serve {model} --on {best.rollout_chip}:{best.rollout_chips // best.replicas} --prompt {report.prompt}"
    )
    words += f" --output {report.mean_output:.0f} --engine {best.engine} --plan {best.rollout}"
    return [NextStep(words, "Next, the engine alone:")]
