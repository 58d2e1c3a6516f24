"""A given plan beside the best one: how far it is from it, and which setting to change."""

from typing import Any

from dragonscale.app.train.records import TrainReport
from dragonscale.web.amounts import amount, elsewhere, share
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.train_plan import typed_plan


def against_panel(asked: PageRequest) -> dict[str, Any]:
    """The comparison that `dscale train --plan` makes: a search, so it is asked by itself."""
    if not asked.fields.get("plan"):
        return {"text": "", "changes": []}
    fields = {name: value for name, value in asked.fields.items() if name != "alone"}
    report: TrainReport = asked.ask("train", fields, brief=False)
    best = report.better
    return {
        "text": report.comparison or f"None of {report.searched:,} plans is feasible.",
        "best": None
        if best is None
        else {
            "plan": typed_plan(best.plan),
            "step": amount(best.step_s, "s", elsewhere({"plan": typed_plan(best.plan)}, "step_s")),
            "mfu": share(best.mfu, elsewhere({"plan": typed_plan(best.plan)}, "mfu")),
        },
        "changes": [
            {
                "setting": one.setting,
                "from": str(one.old),
                "to": str(one.new),
                "step": amount(one.step_s, "s", elsewhere({"plan": one.plan}, "step_s")),
                "gain": f"{one.gain:+.1%}",
                "better": one.gain > 0,
                "plan": one.plan,
            }
            for one in report.changes
        ],
        "measured": None
        if report.measured is None
        else {
            "text": report.measured.text,
            "suspects": [
                {
                    "cause": one.cause,
                    "look": one.look,
                    "step": amount(one.step_s, "s", "measured"),
                    "explains": f"{one.explains:.0%}",
                }
                for one in report.measured.suspects
            ],
        },
    }
