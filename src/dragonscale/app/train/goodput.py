"""A run with failures: what `--checkpoint-every`, `--storage`, `--mtbf`, `--spares` and `--pricing spot` say of it, and
the days, dollars and energy that it then takes."""

import re

from dragonscale.app.given import read_part
from dragonscale.app.train.train_question import TrainAsked
from dragonscale.app.train.train_records import GoodputReport, TrainReport
from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.models.lora import PART
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.price_book import SPOT, site, site_watts
from dragonscale.physics.hardware.prices import price_kind
from dragonscale.physics.units import parse, render
from dragonscale.training.goodput import DAY, Conditions, Run, run_goodput
from dragonscale.training.memory import checkpoint_bytes

LONGEST = 1e9
"""Seconds that a flag may say, at most."""


def _seconds(text: str, flag: str, example: str) -> float | None:
    if not text.strip():
        return None
    seconds = parse(re.sub(r"(?<=\d)\s*m$", "min", text.strip()), "s", flag)  # nobody saves every 30 milliseconds
    if not 0 < seconds < LONGEST:
        raise InputError(f"{flag} is {shorten(text)}; write a time, such as {example}.")
    return seconds


def read_conditions(asked: TrainAsked, piece: Slice) -> Conditions:
    """What the flags say of failures and checkpoints."""
    question = asked.question
    rate, *words = (part.strip() for part in question.storage.split(","))
    if words and words != ["sync"]:
        raise InputError(f"--storage is {shorten(question.storage)}; write a rate, such as 50GB/s or 50GB/s,sync.")
    storage = parse(rate, "bytes/s", "--storage") if rate and rate != "sync" else None
    if storage is not None and storage <= 0:
        raise InputError(f"--storage is {shorten(question.storage)}; it is more than nothing.")
    spares, said = None, question.spares.strip()
    if said.endswith("%"):
        spares = float(-(-piece.hosts * read_part(said, "--spares", "write hosts or a part of them", 0.0, 1.0) // 1))
    elif said:
        spares = float(parse(said, "count", "--spares"))
    return Conditions(
        _seconds(question.checkpoint_every, "--checkpoint-every", "30m"),
        storage,
        bool(words) or rate == "sync",
        _seconds(question.mtbf, "--mtbf", "3h"),
        spares,
        price_kind(piece.chip) == SPOT,
        _seconds(question.restart, "--restart", "5m"),
    )


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
    given = read_conditions(asked, job.slice)
    counts = count_parameters(job.model)
    saved = checkpoint_bytes(counts.by_part.get(PART, counts.total), first.plan, job.stack)  # adapters alone are saved
    try:
        run = run_goodput(job.slice, first.days * DAY, saved, given)
    except Infeasible as error:
        report.notes.append(str(error))
        return
    if given.every and run.write_s - run.save_s > given.every:
        took = render(run.write_s, "s")
        report.notes.append(f"--checkpoint-every {asked.question.checkpoint_every} is less than a save takes, {took}.")
    report.goodput = _record(asked, report, run, first.step_s, job.slice)


def _record(asked: TrainAsked, report: TrainReport, run: Run, step_s: float, piece: Slice) -> GoodputReport:
    first, chip = report.plans[0], piece.chip
    hours, longer = run.busy_s / 3600, run.busy_p90_s / run.busy_s
    cost = None if chip.price is None else hours * piece.chips * run.paid * chip.price
    watts = site_watts(chip)
    energy = None if watts is None else hours * piece.chips * watts / 1e3 * site("pue")
    every = render(run.interval_s, "s")
    saved = f"a checkpoint every {every}" if run.interval_s < run.clean_s else "one checkpoint at the end"
    many = f"{run.failures:,.0f}" if run.failures >= 10 else f"{run.failures:.2g}"
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
        text=f"{text}, {saved}",
    )
