"""What training costs for each token, from the prices that an answer was worked out with."""

from dragonscale.commands.train.train_records import PlanReport, TrainReport
from dragonscale.serving.steady.economics import usd_per_million


def usd_per_mtok(report: TrainReport, plan: PlanReport) -> float | None:
    """Dollars for a million tokens trained on with a plan; None where the chip has no price."""
    chip = report.slice.partition(":")[0]
    price = next((row.usd_per_h for row in report.prices if row.chip == chip), None)
    if price is None:
        return None
    return float(usd_per_million(report.workload.batch_tokens / plan.step_s, plan.chips, price))
