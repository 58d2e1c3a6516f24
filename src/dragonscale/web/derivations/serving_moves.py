"""What a replica sends over its mesh, and the limits that are solved from its iterations."""

from typing import TYPE_CHECKING

from dragonscale.app.explain.formulas import FormulaLine
from dragonscale.app.serve.config import bills_of
from dragonscale.errors import unknown
from dragonscale.web.amounts import amount
from dragonscale.web.derivations.ledger_tables import line_table
from dragonscale.web.derivations.pieces import Piece, chip_sources, facts, formulas, row, step
from dragonscale.web.derivations.profiles import USED, network_sentence

if TYPE_CHECKING:
    from dragonscale.web.derivations.serving import ServeNumbers

DOCS = ("serving", "why")


def sent_facts(of: "ServeNumbers", name: str) -> Piece:
    found = [
        (phase, line)
        for phase, book in bills_of(of.report).items()
        for line in book.lines
        if line.moves and name in ("+".join(line.axes), *line.axes)
    ]
    if not found:
        raise unknown(
            "mesh axis that something is sent over called",
            name,
            {axis for book in bills_of(of.report).values() for line in book.lines for axis in line.axes},
        )
    totals = {
        phase: sum(float(line.total("wire_bytes")) for own, line in found if own == phase)
        for phase in ("decode", "prefill")
    }
    number = amount(totals["decode"] or totals["prefill"], "bytes", f"sent:{name}")
    rows = [
        row(f"in a {'decode step' if phase == 'decode' else 'prompt'}", amount(size, "bytes"))
        for phase, size in totals.items()
        if size
    ]
    for phase, size in totals.items():
        own = [line for place, line in found if place == phase]
        for key, words in (("expected_s", "expected"), ("exposed_s", "exposed")) if size else ():
            rows.append(row(f"{words}, {phase}", amount(sum(float(line.total(key)) for line in own), "s")))
    text, sources = network_sentence(of.chip)
    steps = [
        step("What a chip sends", rows),
        *(
            line_table(
                [line for own, line in found if own == phase],
                f"Moves of a {'decode step' if phase == 'decode' else 'prompt'}",
            )
            for phase in totals
            if totals[phase]
        ),
    ]
    return facts(
        f"Sent over {name}",
        f"What a chip sends over the mesh axis {name}.",
        number,
        steps=steps,
        compared={"rows": [], "text": text},
        sources=sources,
        docs=("collectives", ""),
    )


def sent_formulas(of: "ServeNumbers", name: str) -> Piece:
    lines, letters = list[FormulaLine](), list[Piece]()
    for phase in ("decode", "prefill") if of.report.asked.ask.output > 1 else ("prefill",):
        for _, found in of.phases(phase)[:1]:
            total = sum(
                (
                    line.total("wire_bytes")
                    for line in found.ledger.lines
                    if line.moves and name in ("+".join(line.axes), *line.axes)
                ),
                0,
            )
            if total:
                lines.append(found.say(f"bytes sent in an iteration of {phase}", total, "bytes"))
                letters += of.lettered(found)
    return formulas(lines, letters)


def limit_facts(of: "ServeNumbers", name: str) -> Piece:
    limits = {one.name: one for one in of.report.limits}
    if name not in limits:
        raise unknown("limit called", name, limits)
    one = limits[name]
    number = amount(one.value, "count", f"limit:{name}", f"{one.value:,.4g}")
    return facts(
        name.capitalize(),
        f"Solved from the ledger of this configuration's own iterations: {one.counts or name}.",
        number,
        sources=chip_sources(of.chip, USED),
        docs=DOCS,
    )


def limit_formulas(of: "ServeNumbers", name: str) -> Piece:
    one = next(one for one in of.report.limits if one.name == name)
    return formulas([FormulaLine(name, one.formula, one.formula, f"{one.value:,.6g}", one.value, "count")])
