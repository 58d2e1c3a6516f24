"""A run with failures: the days, dollars and energy that it takes."""

from dataclasses import replace

from dragonscale.commands.train.train_question import TrainAsked
from dragonscale.commands.train.train_records import GoodputReport, TrainReport
from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.price_book import site, site_watts
from dragonscale.physics.units import DAY, render
from dragonscale.training.advice.budget import planned_run
from dragonscale.training.cost.goodput import Run, published


def grid_intensity(asked: TrainAsked) -> float:
    """Kilograms of CO2 for a kWh."""
    text = asked.question.carbon.strip().lower().removesuffix("/kwh").removesuffix("g")
    try:
        return float(text) / 1e3 if text else site("kg_co2_per_kwh")
    except ValueError:
        raise InputError(f"--carbon is {shorten(asked.question.carbon)}; write grams for a kWh, such as 370.") from None


def add_goodput(asked: TrainAsked, report: TrainReport) -> None:
    """Add to a report what failures leave of the run of its first plan, or why they leave nothing."""
    first = report.plans[0]
    job = first.job
    if job is None or first.days is None:
        return
    try:
        run = planned_run(job, first.plan, first.days * DAY)
    except Infeasible as error:
        report.notes.append(str(error))
        return
    if job.run.every and run.write_s - run.save_s > job.run.every:
        took = render(run.write_s, "s")
        report.notes.append(f"--checkpoint-every {asked.question.checkpoint_every} is less than a save takes, {took}.")
    report.goodput = _record(asked, report, run, first.step_s, job.slice)
    price = job.slice.chip.facts.get("price")
    if report.goodput.preemptions and price is not None and price.also:
        stays = planned_run(replace(job, run=replace(job.run, spot=False)), first.plan, first.days * DAY)
        dollars = stays.dollars(job.slice)
        report.goodput.on_demand_days = stays.seconds / DAY
        report.goodput.on_demand_usd = dollars and dollars / (job.slice.chip.price or 1.0) * price.also[0].value


def _record(asked: TrainAsked, report: TrainReport, run: Run, step_s: float, piece: Slice) -> GoodputReport:
    first, chip = report.plans[0], piece.chip
    hours, longer = run.busy_s / 3600, run.busy_p90_s / run.busy_s
    cost = run.dollars(piece)
    watts = site_watts(chip)
    energy = None if watts is None else hours * piece.chips * watts / 1e3 * site("pue")
    every = render(run.interval_s, "s")
    saved = f"a checkpoint every {every}" if run.interval_s < run.clean_s else "one checkpoint at the end"
    many = f"{run.failures:,.0f}" if run.failures >= 10 else f"{run.failures:.2g}"
    spot = ""
    if run.preempted:
        there, last = f"spot chips are there {published('spot_available'):.0%} of the time", 1 / run.preempted
        spot = f", {there}" if run.waiting else f"; it is shorter than spot chips last, {render(last, 's')}"
    text = f"{run.goodput:.1%} goodput, effective MFU {first.own_mfu * run.goodput:.1%}, {many} failures"
    return GoodputReport(
        days=run.seconds / DAY,
        days_p90=run.seconds_p90 / DAY,
        cost_usd=cost,
        cost_usd_p90=cost and cost * longer,
        effective_mfu=first.own_mfu * run.goodput,
        goodput=run.goodput,
        failures=run.failures,
        mtbf_s=1 / run.rate,
        checkpoint_every_s=run.interval_s,
        checkpoint_steps=run.interval_s / step_s,
        checkpoint_bytes=run.checkpoint_bytes,
        save_s=run.save_s,
        write_s=run.write_s,
        restart_s=run.restart_s,
        storage_bytes_per_s=run.storage,
        preemptions=run.preempted * run.busy_s,
        spares=run.spares,
        hosts_out=run.out,
        waiting=run.waiting,
        energy_kwh=energy,
        co2_kg=energy and energy * grid_intensity(asked),
        source=run.source,
        text=f"{text}, {saved}{spot}",
    )
