"""A run with failures: the days, dollars and energy that it takes, and the CO2 of the grid."""

from dragonscale.commands.train.plans import Answered
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.commands.train.train_records import GoodputReport
from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.physics.hardware.price_book import site
from dragonscale.physics.units import DAY, render
from dragonscale.training.advice.assessment import PlanAssessment
from dragonscale.training.advice.run_outlook import RunOutlook, run_outlook
from dragonscale.training.cost.goodput import Run, published

# Fewer failures are printed with two digits.
FEW_FAILURES = 10


def grid_intensity(request: TrainRequest) -> float:
    """Kilograms of CO2 for a kWh."""
    flag = request.question.carbon
    text = flag.strip().lower().removesuffix("/kwh").removesuffix("g")
    if not text:
        return site("kg_co2_per_kwh")
    try:
        return float(text) / 1e3
    except ValueError:
        raise InputError(f"--carbon is {shorten(flag)}; write grams for a kWh, such as 370.") from None


def add_goodput(request: TrainRequest, answered: Answered) -> None:
    """Add to a report what failures leave of the run of its first plan, or why they leave nothing."""
    if answered.first is None or answered.first.assessed.budget is None:
        return
    assessed, report = answered.first.assessed, answered.report
    try:
        outlook = run_outlook(assessed.job, assessed.plan, answered.first.assessed.budget.days * DAY)
    except Infeasible as error:
        report.notes.append(str(error))
        return
    if outlook.save_too_slow:
        report.notes.append(
            f"--checkpoint-every {request.question.checkpoint_every} is less than a save takes, "
            f"{render(outlook.run.write_s, 's')}."
        )
    report.goodput = _goodput_row(assessed, outlook, grid_intensity(request))


def _goodput_row(assessed: PlanAssessment, outlook: RunOutlook, kg_per_kwh: float) -> GoodputReport:
    run = outlook.run
    # of the peak of the format that matmuls are in, as the step has it
    mfu = (assessed.mfu_of_dtype or assessed.mfu) * run.goodput
    return GoodputReport(
        days=run.seconds / DAY,
        days_p90=run.seconds_p90 / DAY,
        cost_usd=outlook.cost_usd,
        cost_usd_p90=outlook.cost_usd_p90,
        effective_mfu=mfu,
        goodput=run.goodput,
        failures=run.failures,
        mtbf_s=1 / run.rate,
        checkpoint_every_s=run.interval_s,
        checkpoint_steps=run.interval_s / assessed.step_s,
        checkpoint_bytes=run.checkpoint_bytes,
        save_s=run.save_s,
        write_s=run.write_s,
        restart_s=run.restart_s,
        storage_bytes_per_s=run.storage,
        preemptions=run.preempted * run.busy_s,
        spares=run.spares,
        hosts_out=run.out,
        waiting=run.waiting,
        energy_kwh=outlook.energy_kwh,
        co2_kg=outlook.energy_kwh and outlook.energy_kwh * kg_per_kwh,
        source=run.source,
        text=_goodput_text(run, mfu),
        on_demand_days=outlook.on_demand.seconds / DAY if outlook.on_demand else None,
        on_demand_usd=outlook.on_demand_usd,
    )


def _goodput_text(run: Run, mfu: float) -> str:
    """The run in a line: goodput, failures, checkpoints, and what spot chips change."""
    failures = f"{run.failures:,.0f}" if run.failures >= FEW_FAILURES else f"{run.failures:.2g}"
    saved = "one checkpoint at the end"
    if run.interval_s < run.clean_s:
        saved = f"a checkpoint every {render(run.interval_s, 's')}"
    text = f"{run.goodput:.1%} goodput, effective MFU {mfu:.1%}, {failures} failures, {saved}"
    if not run.preempted:
        return text
    if run.waiting:
        return f"{text}, spot chips are there {published('spot_available'):.0%} of the time"
    return f"{text}; it is shorter than spot chips last, {render(1 / run.preempted, 's')}"
