"""A whole training run in words: how long it takes, what it costs, and what failures leave of it."""

from dragonscale.blocks import sheet as laid
from dragonscale.blocks.sheet import amount
from dragonscale.commands import grids
from dragonscale.commands.train.train_records import GoodputReport, PlanReport, TrainReport

# Energies from here on are printed in MWh.
MANY_KWH = 1e4


def run_text(report: TrainReport, first: PlanReport) -> str | None:
    """The whole run as its steps take it: hours or days, chip-hours, energy; None where its tokens are not known."""
    if first.days is None:
        return None
    parts = [
        f"{first.steps:,} steps",
        f"{days_text(first.days)} of steps",
        f"{amount(first.chip_hours, 'count')} chip-hours",
    ]
    if first.energy_kwh is not None:
        energy = f"{short_number(first.energy_kwh)} kWh"
        if first.energy_kwh >= MANY_KWH:
            energy = f"{short_number(first.energy_kwh / 1e3)} MWh"
        parts.append(f"{energy} of chips")
    return f"{amount(report.workload.tokens, 'count')} tokens: {', '.join(parts)}"


def goodput_text(report: TrainReport) -> str:
    """The run with failures: days and dollars, of spot chips beside those of chips that nobody takes away; empty where
    its tokens are not known."""
    run = report.goodput
    if run is None:
        return ""
    parts = [f"{days_text(run.days)} with failures (p90 {days_text(run.days_p90)})"]
    if run.preemptions:
        parts.append(f"{run.preemptions:,.3g} times taken away as AWS's V100s of 2023 were (goodput.md)")
        parts.append(f"{days_text(run.waiting * run.days)} of them waiting for spot chips, unpaid")
    if run.cost_usd is not None and run.cost_usd_p90 is not None:
        # prices are listed by chip; the slice is CHIP:TOPOLOGY
        chip = report.slice.rpartition(":")[0]
        price = "".join(f" at {row.text}" for row in report.prices if row.chip == chip)
        parts.append(f"{money_text(run.cost_usd)} (p90 {money_text(run.cost_usd_p90)}){price}")
    if run.on_demand_usd is not None and run.on_demand_days is not None:
        parts.append(f"{days_text(run.on_demand_days)} and {money_text(run.on_demand_usd)}")
    return f"{amount(report.workload.tokens, 'count')} tokens: {', '.join(parts)}"


def goodput_facts(run: GoodputReport) -> laid.Facts:
    """Failures, checkpoints and energy of a run, a line each."""
    energy = None
    if run.energy_kwh is not None and run.co2_kg is not None:
        # grams for a kWh, as --carbon takes it
        intensity = run.co2_kg / run.energy_kwh * 1e3
        energy = (
            f"{run.energy_kwh / 1e3:,.4g} MWh with hosts and cooling, {run.co2_kg / 1e3:,.4g} t of CO2 at "
            f"{intensity:.0f} g/kWh"
        )
    spot = ""
    if run.preemptions:
        spot = f" {run.preemptions:,.3g} of them spot chips taken away, the others"
    waiting = f"{run.hosts_out:.2g} are out in the mean"
    if run.spares is None:
        waiting += "; each is taken to be replaced at once (--spares 0: they are waited for)"
    else:
        waiting += f", {run.spares:,.3g} spare, paid for"
    if run.waiting:
        waiting += f"; {run.waiting:.1%} of the time is without chips"
    return grids.summary("train-goodput", run, energy=energy, spot=spot, wait=waiting)


def days_text(days: float) -> str:
    """A time in hours; minutes where it is short, days where it is long."""
    hours = days * 24
    if hours < 1:
        return f"{hours * 60:,.1f} minutes"
    if days < 2:
        return f"{hours:,.1f} hours"
    return f"{days:,.1f} days"


def short_number(number: float) -> str:
    """A number without decimals; two digits of a small one."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def money_text(dollars: float) -> str:
    """Dollars, with cents where they are few."""
    if dollars >= 1e6:
        return f"${dollars / 1e6:,.2f}M"
    if dollars >= 100:
        return f"${dollars:,.0f}"
    return f"${dollars:,.2f}"
