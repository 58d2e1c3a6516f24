"""The whole run of a plan with failures, checkpoints and restarts, and on spot chips the same with chips that nobody
takes away."""

from dataclasses import dataclass, replace

from dragonscale.physics.hardware.price_book import site, site_watts
from dragonscale.training.advice.budget import planned_run
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.cost.goodput import Run
from dragonscale.training.plan.plan import Plan


@dataclass(frozen=True)
class RunOutlook:
    """A run as failures leave it."""

    job: Job
    run: Run
    energy_kwh: float | None
    """Of chips, hosts and cooling; None where the chip's power is not known."""
    on_demand: Run | None
    """Of a run on spot chips that has an on-demand price too: the same without preemptions."""
    on_demand_usd: float | None

    @property
    def cost_usd(self) -> float | None:
        """Dollars of the run in the mean; None without a price."""
        return self.run.dollars(self.job.slice)

    @property
    def cost_usd_p90(self) -> float | None:
        """What nine of ten such runs cost at most."""
        return self.cost_usd and self.cost_usd * (self.run.busy_p90_s / self.run.busy_s)

    @property
    def save_too_slow(self) -> bool:
        """Whether a checkpoint takes longer to write than the time that was asked for between two."""
        interval_s = self.job.run.every
        return bool(interval_s) and self.run.write_s - self.run.save_s > (interval_s or 0.0)


def run_outlook(job: Job, plan: Plan, clean_s: float) -> RunOutlook:
    """The run of a plan whose steps take `clean_s` seconds. Raises `Infeasible` where failures leave it no time."""
    run = planned_run(job, plan, clean_s)
    chip = job.slice.chip
    watts = site_watts(chip)
    energy_kwh = None
    if watts is not None:
        # power is drawn while the job has chips, not while it waits for some; `pue` adds cooling
        energy_kwh = run.busy_s / 3600 * job.slice.chips * watts / 1e3 * site("pue")
    on_demand = on_demand_usd = None
    price = chip.facts.get("price")
    if run.preempted * run.busy_s and price is not None and price.also:
        on_demand = planned_run(replace(job, run=replace(job.run, spot=False)), plan, clean_s)
        spot_usd = on_demand.dollars(job.slice)  # the chip's price is the spot price
        on_demand_usd = spot_usd and spot_usd / (chip.price or 1.0) * price.also[0].value
    return RunOutlook(job, run, energy_kwh, on_demand, on_demand_usd)
