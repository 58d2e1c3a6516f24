"""A serving configuration as panels: where a decode step and a prompt go, memory, its mesh with what runs over each
axis, its operations under the roof, its iterations in time.

The answer in a sentence (`serve_answer`) and what else could be (`serve_curves`) are in modules of their own.
"""

from collections.abc import Iterable
from dataclasses import replace

from dragonscale.blocks.charts.mesh import AxisMove
from dragonscale.commands.charts.moves import mesh_axes, serving_splits
from dragonscale.commands.charts.roles import memory_parts, served_memory, time_parts
from dragonscale.commands.charts.wiring import axis_wiring, slice_wiring
from dragonscale.commands.serve.config import bills_of, deployment_of
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.physics.hardware import Chip
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.plan.timeline import TimelinePass, timeline
from dragonscale.serving.advice.bills import MemoryUse, held_bill
from dragonscale.serving.engine.formats import part_format
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.iteration import ServingLine
from dragonscale.web.amounts import amount, count, quantities
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import (
    HIDDEN,
    Card,
    bar_parts,
    bounded,
    figure,
    held_row,
    line_rows,
    mesh_card,
    move_card,
)
from dragonscale.web.views.serve_answer import answer_panel
from dragonscale.web.views.serve_curves import batches_panel, frontier_panel
from dragonscale.web.views.tracks import tracks_of

AGREES = 1e-3
"""Lines are shown under a part of memory where they add up to it as nearly as this."""


def _bills(asked: PageRequest) -> tuple[ServeReport, ConfigReport, dict[str, Ledger]] | None:
    """The ledgers of a decode step and of a prompt of the first configuration; one output token has no decode step."""
    report: ServeReport = asked.record
    return (report, report.configs[0], bills_of(report)) if report.configs else None


def time_panel(asked: PageRequest) -> Card:
    """Two bars: a decode step and a prompt that runs alone, exposed and hidden seconds by term, each with its lines."""
    if (billed := _bills(asked)) is None:
        return {"bars": []}
    report, one, bills = billed
    bars = [_step_bar(report, one, bills["decode"])] if "decode" in bills else []
    return {"bars": [*bars, _prompt_bar(report, one, bills["prefill"])]}


def _step_bar(report: ServeReport, one: ConfigReport, ledger: Ledger) -> Card:
    context = f"{round(report.asked.ask.context):,} tokens of context"
    return {
        "name": "decode",
        "title": "A decode step",
        "about": f"{one.batch:,} sequences of {context}, on each chip of a replica{_beside_prompts(one)}",
        **quantities(one, {"total": "decode_step_s", "lower": "lower_s", "roofline": "roofline_s"}, str),
        "parts": _time_parts(ledger, "term"),
    }


def _beside_prompts(one: ConfigReport) -> str:
    """Why a token takes longer than a step: prompts of other requests are read between the steps."""
    if one.drafts or one.tpot_s <= 1.005 * one.decode_step_s:
        return ""
    taken = 1 - one.decode_step_s / one.tpot_s
    return f"; TPOT is {render(one.tpot_s, 's')} because prompts of other requests take {taken:.0%} of the time"


def _prompt_bar(report: ServeReport, one: ConfigReport, ledger: Ledger) -> Card:
    chunks = f"; beside others in {one.prefill_chunks} chunks" if one.prefill_chunks > 1 else ""
    new = max(1, round(report.workload.prompt * (1 - report.workload.cached)))
    return {
        "name": "prefill",
        "title": "A prompt",
        "about": f"{new:,} tokens with no other request running{chunks}",
        "total": amount(sum(row.expected_s for row in one.prefill_terms), "s", "prefill_alone_s"),
        "beside": amount(one.prefill_s, "s", "prefill_s"),
        "lower": amount(sum(row.roofline_s for row in one.prefill_terms), "s"),
        "parts": _time_parts(ledger, "prefill"),
    }


def _time_parts(ledger: Ledger, why: str) -> list[Card]:
    shown, expected, bound = (ledger.by("term", name) for name in ("exposed_s", "expected_s", "bound_s"))
    parts = time_parts((name, float(shown[name]), max(float(expected[name] - shown[name]), 0.0)) for name in shown)
    return bounded(parts, why, bound, line_rows(ledger))


def memory_panel(asked: PageRequest) -> Card:
    """Bytes of a chip by part against what it has, and how many sequences fit."""
    report: ServeReport = asked.record
    if not report.configs or report.configs[0].memory is None:
        return {"parts": []}
    one, read, use = report.configs[0], report.asked, report.configs[0].memory
    held = served_memory(use)
    lines = _held_rows(held_bill(read, one.batch, deployment_of(read, one)), held)
    free = [("free for KV cache", use.free_bytes), ("left by the engine", use.left_alone_bytes)]
    return {
        **quantities(one, {"used": "hbm_bytes", "limit": "hbm_limit_bytes"}, str),
        "parts": bar_parts(memory_parts(held.items()), "bytes", "memory", lines),
        "rest": [{"name": name, "shown": amount(size, "bytes", f"memory:{name}")} for name, size in free if size > 0],
        "fits": _fits(one, use, report.workload.prompt + report.workload.output),
    }


def _held_rows(ledger: Ledger, parts: dict[str, float]) -> dict[str, list[Card]]:
    """Tensors by part, the largest first; a part that they do not add up to (a cache whose prefix is shared) has
    none."""
    rows: dict[str, list[Card]] = {}
    for name, size in parts.items():
        own = sorted((held for held in ledger.held if held.part == name), key=lambda held: -float(held.bytes))
        if size > 0 and abs(sum(float(held.bytes) for held in own) / size - 1) < AGREES:
            rows[name] = [held_row(held) for held in own if held.bytes]
    return rows


def _fits(one: ConfigReport, use: MemoryUse, length: int) -> list[Card]:
    """How much room the cache has, as figures."""
    pages = f"{use.pages:,} pages of {use.page_tokens} tokens" if use.page_tokens > 1 else f"{use.tokens:,.0f} tokens"
    room = f"tokens of a replica: {pages}; {render(use.free_bytes, 'bytes')} a chip free"
    return [
        figure("sequences that fit", count(one.max_batch, "max_batch"), f"of {length:,} tokens each"),
        figure("in flight", count(one.batch, "batch"), f"{one.batch / max(one.max_batch, 1):.0%} of them"),
        figure("KV cache of a sequence", amount(use.sequence_bytes, "bytes", "sequence_bytes"), "on a chip"),
        figure("KV cache of a token", amount(use.token_bytes, "bytes", "kv_bytes_per_token"), "on a chip"),
        figure("room", count(use.tokens, "kv_tokens"), room),
    ]


AXES = ("pipe", "data", "context", "width", "tensor")
"""Axes of a serving mesh, outermost first; experts are dealt out over data and tensor."""
SEEN = 2e-3
"""Operations of a smaller share of an iteration are not drawn."""


def mesh_panel(asked: PageRequest) -> Card:
    """The mesh of one replica, outermost axis first, with the collectives of a decode step and of a prompt over each
    axis."""
    if (billed := _bills(asked)) is None:
        return {"slice": "", "axes": [], "frames": [], "dots": [], "wiring": "", "chip": ""}
    report, one, bills = billed
    piece = deployment_of(report.asked, one).piece
    degrees = {name: getattr(one, name) for name in AXES}
    laid = axis_wiring({name: degree for name, degree in degrees.items() if degree > 1}, piece)
    every = {phase: {axis.name: axis for axis in mesh_axes(degrees, book.lines)} for phase, book in bills.items()}
    first = next(iter(every.values())).values()
    axes = [replace(axis, moves=(), splits=serving_splits(axis.name, one.expert)) for axis in first]
    card = mesh_card(axes, one.copy_slice, laid)
    for axis in card["axes"]:
        for phase, own in every.items():
            axis["moves"] += [_move(move, axis["name"], phase) for move in own[axis["name"]].moves]
    shape = {"wiring": slice_wiring(piece), "chip": piece.chip.title, "chips": count(one.chips)}
    return card | {"copies": one.copies, **shape}


def _move(move: AxisMove, axis: str, phase: str) -> Card:
    """A collective over an axis, in one of the two iterations."""
    when = {"decode": "in a decode step", "prefill": "in a prompt"}[phase]
    hidden = (move.exposed or 0.0) < HIDDEN * (move.seconds or 0.0)
    return move_card(move, axis) | {"name": f"{move.name} {when}", "phase": phase, "hidden": hidden}


def roofline_panel(asked: PageRequest) -> Card:
    """The kernels of a decode step and of a prompt under the chip's roof: FLOPs a byte, and FLOP/s as they are expected
    to run."""
    if (billed := _bills(asked)) is None:
        return {"roofs": [], "points": []}
    report, one, bills = billed
    deployment = deployment_of(report.asked, one)
    chip = deployment.chip
    points = [point for phase, ledger in bills.items() for point in _points(ledger, phase, one.batch)]
    return {"roofs": _roofs(chip, deployment.plan), "points": points, "chip": chip.title}


def _roofs(chip: Chip, plan: ServingPlan) -> list[Card]:
    """The roof of each format that is multiplied in."""
    found: dict[float, Card] = {}
    for part in ("mlp", "attention", "head"):
        dtype = FORMATS[part_format(plan, part)].compute
        peak = chip.peak(dtype)
        found.setdefault(peak, {"name": dtype, "peak": peak, "bandwidth": chip.bandwidth("hbm"), "why": "chip:peak"})
    return list(found.values())


def _points(ledger: Ledger, phase: str, batch: int) -> Iterable[Card]:
    whole = float(ledger.total("exposed_s")) or 1.0
    sums: dict[tuple[str, str], list[float]] = {}
    terms: dict[tuple[str, str], str] = {}
    for line in ledger.lines:
        if float(line.flops) > 0 and float(line.hbm_bytes) > 0 and not line.moves:
            key = (line.section, line.what)
            terms[key] = line.term
            own = sums.get(key, [0.0] * 5)
            sums[key] = [total + value for total, value in zip(own, _measures(line), strict=True)]
    kind, role, when = ("term", "hbm", f"batch {batch:,}") if phase == "decode" else ("prefill", "compute", "a prompt")
    for (section, what), (flops, moved, seconds, compute, memory) in sums.items():
        if seconds >= SEEN * whole:
            yield {
                "name": f"{phase} {what}",
                "phase": phase,
                "section": section,
                "intensity": flops / moved,
                "rate": flops / seconds,
                "bound": "compute" if compute > memory else "memory",
                "role": role,
                "text": f"{terms[section, what]}; {when}, {render(seconds, 's')}",
                "why": f"{kind}:{terms[section, what]}",
            }


def _measures(line: LedgerLine) -> tuple[float, float, float, float, float]:
    own = line if isinstance(line, ServingLine) else None
    bounds = (first_number(own.total("compute_s")), first_number(own.total("memory_s"))) if own else (0.0, 0.0)
    return float(line.total("flops")), float(line.total("hbm_bytes")), float(line.total("expected_s")), *bounds


def timeline_panel(asked: PageRequest) -> Card:
    """A prompt and then a decode step, as a chip runs them: what it does after what, and what travels beside it."""
    if (billed := _bills(asked)) is None:
        return {"tracks": [], "total": amount(None, "s")}
    _, one, bills = billed
    names = {"prefill": "a prompt", "decode": f"a decode step of {one.batch:,}"}
    passes = [TimelinePass(name, tuple(bills[phase].lines)) for phase, name in names.items() if phase in bills]
    total = sum(float(book.total("exposed_s")) for book in bills.values())
    about = f"A chip of {one.copy_slice}: a prompt that runs alone, then a decode step"
    drawn = f"{about}; layers of a kind are drawn together."
    return {"tracks": tracks_of(timeline(passes, "")), "total": amount(total, "s"), "about": drawn}


PANELS = {
    "answer": answer_panel,
    "time": time_panel,
    "memory": memory_panel,
    "roofline": roofline_panel,
    "mesh": mesh_panel,
    "timeline": timeline_panel,
    "frontier": frontier_panel,
    "batches": batches_panel,
}
