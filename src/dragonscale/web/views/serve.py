"""A serving configuration as panels: where a decode step and a prompt go, memory, its mesh with what runs over each
axis, its operations under the roof, its iterations in time.

The answer in a sentence (`serve_answer`) and what else could be (`serve_curves`) are in modules of their own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dragonscale.blocks.amounts import amount, count, quantities
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


def _bills(request: PageRequest) -> tuple[ServeReport, ConfigReport, dict[str, Ledger]] | None:
    """The ledgers of a decode step and of a prompt of the first configuration; one output token has no decode step."""
    report: ServeReport = request.record
    return (report, report.configs[0], bills_of(report)) if report.configs else None


def time_panel(request: PageRequest) -> Card:
    """Two bars: a decode step and a prompt that runs alone, exposed and hidden seconds by term, each with its lines."""
    if (billed := _bills(request)) is None:
        return {"bars": []}
    report, config, bills = billed
    bars = [_step_bar(report, config, bills["decode"])] if "decode" in bills else []
    return {"bars": [*bars, _prompt_bar(report, config, bills["prefill"])]}


def _step_bar(report: ServeReport, config: ConfigReport, ledger: Ledger) -> Card:
    context = f"{round(report.asked.ask.context):,} tokens of context"
    return {
        "name": "decode",
        "title": "A decode step",
        "about": f"{config.batch:,} sequences of {context}, on each chip of a replica{_beside_prompts(config)}",
        **quantities(config, {"total": "decode_step_s", "lower": "lower_s", "roofline": "roofline_s"}, str),
        "parts": _time_parts(ledger, "term"),
    }


def _beside_prompts(config: ConfigReport) -> str:
    """Why a token takes longer than a step: prompts of other requests are read between the steps."""
    if config.drafts or config.tpot_s <= 1.005 * config.decode_step_s:
        return ""
    waiting = 1 - config.decode_step_s / config.tpot_s
    return f"; TPOT is {render(config.tpot_s, 's')} because prompts of other requests take {waiting:.0%} of the time"


def _prompt_bar(report: ServeReport, config: ConfigReport, ledger: Ledger) -> Card:
    chunks = f"; beside others in {config.prefill_chunks} chunks" if config.prefill_chunks > 1 else ""
    new = max(1, round(report.workload.prompt * (1 - report.workload.cached)))
    return {
        "name": "prefill",
        "title": "A prompt",
        "about": f"{new:,} tokens with no other request running{chunks}",
        "total": amount(sum(row.expected_s for row in config.prefill_terms), "s", "prefill_alone_s"),
        "beside": amount(config.prefill_s, "s", "prefill_s"),
        "lower": amount(sum(row.roofline_s for row in config.prefill_terms), "s"),
        "parts": _time_parts(ledger, "prefill"),
    }


def _time_parts(ledger: Ledger, why: str) -> list[Card]:
    shown, expected, bound = (ledger.by("term", name) for name in ("exposed_s", "expected_s", "bound_s"))
    parts = time_parts((name, float(shown[name]), max(float(expected[name] - shown[name]), 0.0)) for name in shown)
    return bounded(parts, why, bound, line_rows(ledger))


def memory_panel(request: PageRequest) -> Card:
    """Bytes of a chip by part against what it has, and how many sequences fit."""
    report: ServeReport = request.record
    if not report.configs or report.configs[0].memory is None:
        return {"parts": []}
    config, read, use = report.configs[0], report.asked, report.configs[0].memory
    parts = served_memory(use)
    lines = _held_rows(held_bill(read, config.batch, deployment_of(read, config)), parts)
    free = [("free for KV cache", use.free_bytes), ("left by the engine", use.left_alone_bytes)]
    return {
        **quantities(config, {"used": "hbm_bytes", "limit": "hbm_limit_bytes"}, str),
        "parts": bar_parts(memory_parts(parts.items()), "bytes", "memory", lines),
        "rest": [{"name": name, "shown": amount(size, "bytes", f"memory:{name}")} for name, size in free if size > 0],
        "fits": _fits(config, use, report.workload.prompt + report.workload.output),
    }


def _held_rows(ledger: Ledger, parts: dict[str, float]) -> dict[str, list[Card]]:
    """Tensors by part, the largest first; a part that they do not add up to (a cache whose prefix is shared) has
    none."""
    rows: dict[str, list[Card]] = {}
    for name, size in parts.items():
        tensors = sorted(
            (tensor for tensor in ledger.held if tensor.part == name), key=lambda tensor: -float(tensor.bytes)
        )
        if size > 0 and abs(sum(float(tensor.bytes) for tensor in tensors) / size - 1) < AGREES:
            rows[name] = [held_row(tensor) for tensor in tensors if tensor.bytes]
    return rows


def _fits(config: ConfigReport, use: MemoryUse, length: int) -> list[Card]:
    """How much room the cache has, as figures."""
    pages = f"{use.pages:,} pages of {use.page_tokens} tokens" if use.page_tokens > 1 else f"{use.tokens:,.0f} tokens"
    note = f"tokens of a replica: {pages}; {render(use.free_bytes, 'bytes')} a chip free"
    return [
        figure("sequences that fit", count(config.max_batch, "max_batch"), f"of {length:,} tokens each"),
        figure("in flight", count(config.batch, "batch"), f"{config.batch / max(config.max_batch, 1):.0%} of them"),
        figure("KV cache of a sequence", amount(use.sequence_bytes, "bytes", "sequence_bytes"), "on a chip"),
        figure("KV cache of a token", amount(use.token_bytes, "bytes", "kv_bytes_per_token"), "on a chip"),
        figure("room", count(use.tokens, "kv_tokens"), note),
    ]


AXES = ("pipe", "data", "context", "width", "tensor")
"""Axes of a serving mesh, outermost first; experts are dealt out over data and tensor."""
SEEN = 2e-3
"""Operations of a smaller share of an iteration are not drawn."""


def mesh_panel(request: PageRequest) -> Card:
    """The mesh of one replica, outermost axis first, with the collectives of a decode step and of a prompt over each
    axis."""
    if (billed := _bills(request)) is None:
        return {"slice": "", "axes": [], "frames": [], "dots": [], "wiring": "", "chip": ""}
    report, config, bills = billed
    slice_ = deployment_of(report.asked, config).piece
    degrees = {name: getattr(config, name) for name in AXES}
    wiring = axis_wiring({name: degree for name, degree in degrees.items() if degree > 1}, slice_)
    moved = {phase: {axis.name: axis for axis in mesh_axes(degrees, book.lines)} for phase, book in bills.items()}
    first = next(iter(moved.values())).values()
    axes = [replace(axis, moves=(), splits=serving_splits(axis.name, config.expert)) for axis in first]
    card = mesh_card(axes, config.copy_slice, wiring)
    for axis in card["axes"]:
        for phase, moving_axes in moved.items():
            axis["moves"] += [_move(move, axis["name"], phase) for move in moving_axes[axis["name"]].moves]
    shape = {"wiring": slice_wiring(slice_), "chip": slice_.chip.title, "chips": count(config.chips)}
    return card | {"copies": config.copies, **shape}


def _move(move: AxisMove, axis: str, phase: str) -> Card:
    """A collective over an axis, in one of the two iterations."""
    when = {"decode": "in a decode step", "prefill": "in a prompt"}[phase]
    hidden = (move.exposed or 0.0) < HIDDEN * (move.seconds or 0.0)
    return move_card(move, axis) | {"name": f"{move.name} {when}", "phase": phase, "hidden": hidden}


def roofline_panel(request: PageRequest) -> Card:
    """The kernels of a decode step and of a prompt under the chip's roof: FLOPs a byte, and FLOP/s as they are expected
    to run."""
    if (billed := _bills(request)) is None:
        return {"roofs": [], "points": []}
    report, config, bills = billed
    deployment = deployment_of(report.asked, config)
    chip = deployment.chip
    points = [point for phase, ledger in bills.items() for point in _points(ledger, phase, config.batch)]
    return {"roofs": _roofs(chip, deployment.plan), "points": points, "chip": chip.title}


def _roofs(chip: Chip, plan: ServingPlan) -> list[Card]:
    """The roof of each format that is multiplied in."""
    roofs: dict[float, Card] = {}
    for part in ("mlp", "attention", "head"):
        dtype = FORMATS[part_format(plan, part)].compute
        peak = chip.peak(dtype)
        roofs.setdefault(peak, {"name": dtype, "peak": peak, "bandwidth": chip.bandwidth("hbm"), "why": "chip:peak"})
    return list(roofs.values())


@dataclass
class _OperationSums:
    """What all lines of one operation of a section come to."""

    term: str
    flops: float = 0.0
    hbm_bytes: float = 0.0
    expected_s: float = 0.0
    compute_s: float = 0.0
    memory_s: float = 0.0

    def add(self, line: LedgerLine) -> None:
        self.flops += float(line.total("flops"))
        self.hbm_bytes += float(line.total("hbm_bytes"))
        self.expected_s += float(line.total("expected_s"))
        if isinstance(line, ServingLine):
            self.compute_s += first_number(line.total("compute_s"))
            self.memory_s += first_number(line.total("memory_s"))


def _points(ledger: Ledger, phase: str, batch: int) -> Iterable[Card]:
    """The operations of an iteration, each a point at its FLOPs a byte and its FLOP/s."""
    operations: dict[tuple[str, str], _OperationSums] = {}
    for line in ledger.lines:
        if float(line.flops) > 0 and float(line.hbm_bytes) > 0 and not line.moves:
            operations.setdefault((line.section, line.what), _OperationSums(line.term)).add(line)
    kind, role, group, when = "prefill", "compute", "a prompt", "a prompt"
    if phase == "decode":
        kind, role, group, when = "term", "hbm", "a decode step", f"batch {batch:,}"
    least_s = SEEN * (float(ledger.total("exposed_s")) or 1.0)
    for (section, what), operation in operations.items():
        if operation.expected_s >= least_s:
            yield {
                "name": f"{phase} {what}",
                "phase": phase,
                "group": group,
                "section": section,
                "intensity": operation.flops / operation.hbm_bytes,
                "rate": operation.flops / operation.expected_s,
                "bound": "compute" if operation.compute_s > operation.memory_s else "memory",
                "role": role,
                "text": f"{operation.term}; {when}, {render(operation.expected_s, 's')}",
                "why": f"{kind}:{operation.term}",
            }


def timeline_panel(request: PageRequest) -> Card:
    """A prompt and then a decode step, as a chip runs them: what it does after what, and what travels beside it."""
    if (billed := _bills(request)) is None:
        return {"tracks": [], "total": amount(None, "s")}
    _, config, bills = billed
    names = {"prefill": "a prompt", "decode": f"a decode step of {config.batch:,}"}
    passes = [TimelinePass(name, tuple(bills[phase].lines)) for phase, name in names.items() if phase in bills]
    total = sum(float(book.total("exposed_s")) for book in bills.values())
    sentence = f"A chip of {config.copy_slice}: a prompt that runs alone, then a decode step"
    drawn = f"{sentence}; layers of a kind are drawn together."
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
