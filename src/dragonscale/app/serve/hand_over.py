"""The best configuration as a plan file that `dscale simulate` takes as it is: the replica, how many, and what they are
for."""

from dragonscale.app.given import check_named
from dragonscale.app.questions.flag import written
from dragonscale.app.serve.question import ServeAsked
from dragonscale.app.serve.records import ConfigReport, ServeReport
from dragonscale.physics.hardware import parse_target
from dragonscale.serving.plan import parse_serving_plan
from dragonscale.serving.plan_file import (
    SavedDrafts,
    SavedLaunch,
    SavedPlan,
    SavedPrefill,
    SavedTargets,
    SavedTraffic,
    save_serving_plan,
)


def save_best(asked: ServeAsked, report: ServeReport, path: str) -> None:
    """Write what a report recommends as TOML: disaggregated prefill and decode where that is worth it, the best
    configuration otherwise."""
    check_named(asked.question.model, asked.question.on, asked.question.draft)
    save_serving_plan(recommended(asked, report), path)


def recommended(asked: ServeAsked, report: ServeReport) -> SavedPlan:
    """What a report recommends, with everything it was worked out for."""
    apart = report.disaggregation
    pools = apart.pools[0] if apart is not None and apart.pays and apart.pools else None
    best = report.configs[0] if pools is None else pools.decode
    question, limits = asked.question, asked.limits
    prefill = SavedPrefill()
    if pools is not None:
        own = pools.prefill
        prefill = SavedPrefill(written_slice(asked, own.copy_slice), own.plan, pools.prefills)
    return SavedPlan(
        parse_serving_plan(best.plan),
        written(question.model),
        written_slice(asked, best.copy_slice),
        best.engine,
        best.batch,
        replicas=_replicas(best) if pools is None else pools.decodes,
        traffic=SavedTraffic(
            asked.ask.prompt,
            asked.ask.output,
            asked.ask.cached,
            question.rate.strip(),
            ramp="" if question.rate.strip() else f"{best.latency_s:.4g}s",
        ),
        targets=SavedTargets(question.ttft.strip(), question.tpot.strip()),
        launch=SavedLaunch(limits.max_seqs, limits.token_budget, limits.memory_fraction),
        speculation=_drafts(asked, best),
        prefill=prefill,
    )


def _replicas(best: ConfigReport) -> int:
    """Those that the rate asks for, or as many as the asked slice holds."""
    return best.copies if best.replicas is None else best.replicas


def _drafts(asked: ServeAsked, best: ConfigReport) -> SavedDrafts:
    if asked.draft is None or not best.drafts:
        return SavedDrafts()
    chances = asked.draft.acceptance
    text = ",".join(f"{one:g}" for one in (chances if isinstance(chances, tuple) else (chances,)))
    return SavedDrafts(best.drafts, text, written(asked.question.draft))


def written_slice(asked: ServeAsked, piece: str) -> str:
    """A slice as a command reads it: with the path of its chip's file, where it has one."""
    name, _, topology = piece.partition(":")
    for part in asked.question.on.split(",") if isinstance(asked.question.on, str) else ():
        if ".toml" in part and parse_target(part.strip())[0].name == name:
            return f"{part.strip().partition('.toml')[0]}.toml:{topology}"
    return piece
