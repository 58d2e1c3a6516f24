"""What a training plan adds up to: memory from its tensors, bytes sent from its moves, days and
dollars from its step."""

from typing import TYPE_CHECKING

from dragonscale.app.charts.moves import mesh_axes
from dragonscale.app.explain.formulas import FormulaLine
from dragonscale.app.train.plans import HELD
from dragonscale.errors import unknown
from dragonscale.physics.units import render
from dragonscale.sheets.charts.mesh import AxisMove
from dragonscale.web.amounts import Amount, amount, count
from dragonscale.web.derivations.ledger_tables import held_table, line_table
from dragonscale.web.derivations.pieces import Piece, chip_sources, facts, formulas, row, step, titled
from dragonscale.web.derivations.profiles import network_sentence

if TYPE_CHECKING:
    from dragonscale.web.derivations.training import TrainNumbers

RUN_DOCS = ("training", "the-run")
WORKED = {"text": "Worked out by the planner from the step and the tokens that were asked for.", "url": ""}


def memory_facts(of: "TrainNumbers") -> Piece:
    """What the fullest chip holds."""
    one = of.one
    total = amount(one.hbm_bytes, "bytes", "hbm_bytes")
    rows = [row(part.name, amount(part.bytes, "bytes", f"memory:{part.name}")) for part in one.memory if part.bytes > 0]
    used = (
        f"{one.hbm_bytes / one.hbm_limit_bytes:.0%} of the {render(one.hbm_limit_bytes, 'bytes')} that a program finds."
    )
    sentence = f"What the fullest chip holds at its fullest moment: {used}"
    return facts(
        "Memory",
        sentence,
        total,
        steps=[step("What is held", rows, total)],
        docs=("validation-training", "memory"),
        error="Errors of memory against measured and compiled programs are listed in the docs.",
        sources=chip_sources(of.chip, ["memory.hbm.visible", "memory.hbm.capacity"]),
    )


def held_facts(of: "TrainNumbers", name: str) -> Piece:
    """One part of memory, tensor by tensor."""
    parts = {part.name: part.bytes for part in of.one.memory}
    if name not in parts:
        raise unknown("part of this plan's memory called", name, parts)
    lines = [line for line in of.ledger.held if HELD.get(line.part, line.part) == name]
    number = amount(parts[name], "bytes", f"memory:{name}")
    sentence = (
        f"Bytes of “{name}” on the fullest chip: {len(lines)} tensor{'s' * (len(lines) != 1)} of the plan's ledger."
    )
    where = {
        "text": "Counted by the planner's ledger from the model's shapes, the plan's splits and the stack's formats.",
        "url": "",
    }
    return facts(
        titled(name),
        sentence,
        number,
        steps=[held_table(lines, number)],
        docs=("validation-training", "memory"),
        sources=[where],
    )


def sent_facts(of: "TrainNumbers", name: str) -> Piece:
    """Bytes over an axis, by the collectives that send them."""
    lines = [line for line in of.ledger.lines if line.moves and name in ("+".join(sorted(line.axes)), *line.axes)]
    if not lines:
        raise unknown("mesh axis that something is sent over called", name, of.one.sent_bytes)
    number = amount(sum(float(line.total("wire_bytes")) for line in lines), "bytes", f"sent:{name}")
    networks, sources = network_sentence(of.chip, of.job.transport)
    sentence = f"What a chip sends over the mesh axis {name} in a step: {len(lines)} kinds of moves."
    degrees = vars(of.one.plan)
    moves = [move for axis in mesh_axes(degrees, of.ledger.lines) if axis.name == name for move in axis.moves]
    sums = [step(move.name, _move_rows(move)) for move in moves]
    return facts(
        f"Sent over {name}",
        sentence,
        number,
        steps=[*sums, line_table(lines)],
        compared={"rows": [], "text": networks},
        sources=sources,
        docs=("collectives", ""),
    )


def _move_rows(move: AxisMove) -> list[Piece]:
    return [
        row("bytes", amount(move.bytes, "bytes")),
        row("expected", amount(move.seconds, "s")),
        row("exposed", amount(move.exposed, "s")),
    ]


def run_facts(of: "TrainNumbers", which: str) -> Piece:
    """Days and dollars of the whole run."""
    one, job, chip = of.one, of.job, of.chip
    tokens = of.report.workload.tokens or 0.0
    days = (one.days or 0.0) * 86400
    number: Amount = amount(days, "s", "days", f"{one.days or 0:.3g} days")
    rows = [
        row("tokens of the run", amount(tokens, "count"), "as asked"),
        row("tokens of a step", count(job.tokens)),
        row("steps", count(one.steps or 0)),
        row("step", amount(one.step_s, "s", "step_s")),
    ]
    title, sentence = (
        "Length of the run",
        "Steps that the tokens of the run take, each as long as a step; no failures or restarts.",
    )
    if which == "cost_usd":
        number = amount(one.cost_usd, "USD", "cost_usd")
        price = next((price for price in of.report.prices if price.chip == chip.name), None)
        rows += [
            row("chips", count(job.slice.chips)),
            row("an hour of a chip", amount(chip.price, "USD/h"), price.text if price else ""),
        ]
        title, sentence = "Cost of the run", "Chip-hours of the run at the price of an hour."
    low, high = (days * bound / one.step_s for bound in (one.step_low_s, one.step_high_s))
    error = f"{one.band}: {low / 86400:.3g} to {high / 86400:.3g} days here."
    return facts(
        title,
        sentence,
        number,
        steps=[step("Put together from", rows, number)],
        error=error,
        docs=RUN_DOCS,
        sources=chip_sources(chip, ["price"]) if which == "cost_usd" else [WORKED],
    )


def run_formulas(of: "TrainNumbers") -> Piece:
    """The same as formulas."""
    one, job, chip = of.one, of.job, of.chip
    tokens = of.report.workload.tokens or 0.0
    days = one.days or 0.0
    put_in = f"ceiling({tokens:.6g}/({job.batch}*{job.sequence}))*{one.step_s:.6g}"
    lines = [FormulaLine("seconds", "ceiling(N_tokens/(B*T))*t_step", put_in, f"{days:.4g} days", days * 86400, "s")]
    if one.cost_usd is not None and chip.price is not None:
        money = f"{job.slice.chips}*{chip.price:.6g}*{days * 86400:.6g}/3600"
        lines.append(
            FormulaLine("dollars", "n_chips*price*t_run/3600", money, f"${one.cost_usd:,.0f}", one.cost_usd, "USD")
        )
    return formulas(lines)
