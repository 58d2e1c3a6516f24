"""Planned collectives beside compiled ones: which is which, what is left over, and why.

Both sides are bytes that a chip sends, so a planned move and a compiled one are the same where kind, mesh axes and
bytes agree; what differs in number of executions is left over. Leftovers are then held against what the compilers are
known to do instead: a rule explains a difference only if its own arithmetic gives the bytes that were found.

A plan verified: the compiler's program beside the plan, number by number.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from dragonscale.evidence.verify import compiling
from dragonscale.evidence.verify.planned import Planned, device_memory, plan_of, stack_differences
from dragonscale.evidence.verify.records import (
    AxisLine,
    Made,
    OverlapLine,
    Request,
    Unmatched,
    VerifyLine,
    VerifyReport,
    explanations,
)
from dragonscale.evidence.xla import tpu_target
from dragonscale.evidence.xla.compiled import Compiled, Exchange
from dragonscale.physics.hardware import parse_slice
from dragonscale.plan.ledger import LedgerLine

TOLERANCE = 0.03
"""Bytes over a set of mesh axes agree within this."""
NEGLIGIBLE = 1e-3
"""Of all that is sent: less than this decides nothing, and is not asked after."""
STAGE = "/stage_"
"""In the name of an operation: it is done by one of the ranks of a pipeline at its turn."""
Axes = tuple[str, ...]


@dataclass
class Sent:
    """What goes over one set of axes on both sides, by kind."""

    planned: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    compiled: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    moves: list[LedgerLine] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    piped: bool = False


def axis_lines(moves: Sequence[LedgerLine], exchanges: Sequence[Exchange]) -> tuple[AxisLine, ...]:
    """A line for each set of mesh axes, the busiest first."""
    piped = any("pipe" in move.axes for move in moves)
    sent: dict[Axes, Sent] = defaultdict(lambda: Sent(piped=piped))
    for move in moves:
        one = sent[tuple(sorted(move.axes))]
        one.planned[move.kind] += move.total("wire_bytes")
        one.moves.append(move)
    for exchange in exchanges:
        one = sent[tuple(sorted(exchange.axes))]
        one.compiled[exchange.kind] += exchange.wire_bytes * exchange.times
        one.exchanges.append(exchange)
    whole = sum(move.total("wire_bytes") for move in moves) or 1.0
    lines = []
    for axes, one in sent.items():
        planned, compiled = sum(one.planned.values()), sum(one.compiled.values())
        kinds = {kind: (one.planned[kind], one.compiled[kind]) for kind in {**one.planned, **one.compiled}}
        verdict, why = _axis_verdict(planned, compiled, whole, one)
        line = VerifyLine("·".join(axes) or "none", "bytes", planned, compiled, TOLERANCE, verdict, why)
        lines.append(AxisLine(axes, line, kinds))
    return tuple(sorted(lines, key=lambda each: -max(each.line.planned, each.line.compiled)))


def _axis_verdict(planned: float, compiled: float, whole: float, one: Sent) -> tuple[str, str]:
    if math.isclose(planned, compiled, rel_tol=TOLERANCE):
        return "agrees", ""
    if abs(planned - compiled) < NEGLIGIBLE * whole:
        return "agrees", "less than a thousandth of all that is sent"
    why = explained(one, planned, compiled)
    return ("explained", why) if why else ("differs", "")


def explained(one: Sent, planned: float, compiled: float) -> str:
    """The first known rewrite whose arithmetic accounts for the difference, or nothing."""
    rules = (_decomposed, _reduced_whole, _widened, _padded, _cast_early, _hoisted, _around_stages)
    return next((why for rule in rules if (why := rule(one, planned, compiled))), "")


def _close(found: float, planned: float) -> bool:
    return math.isclose(found, planned, rel_tol=TOLERANCE)


def _total(exchanges: Iterable[Exchange]) -> float:
    return sum(each.wire_bytes * each.times for each in exchanges)


def _decomposed(one: Sent, planned: float, compiled: float) -> str:
    """Gathers and scatters as sends inside a matmul: n + 1 sends where a ring needs n − 1."""
    sends = _total(each for each in one.exchanges if each.decomposed)
    if not sends:
        return ""
    moved = planned - (compiled - sends)
    if moved <= 0 or not 0.8 < sends / moved < 2.2:
        return ""
    inside = f"{sends / 1e9:.2f} GB go as sends inside matmuls (a collective matmul)"
    instead = f"{sends / moved - 1:+.0%} of the {moved / 1e9:.2f} GB of the gathers and scatters they stand for"
    return f"{inside}, {instead}: its two directions are unrolled, with a send or two more than a ring needs"


def _reduced_whole(one: Sent, planned: float, compiled: float) -> str:
    """AllReduce where a scatter was planned, or AllReduce of zero-padded blocks for a gather: twice the bytes of
    either."""
    more = one.compiled["all_reduce"] - one.planned["all_reduce"]
    less = sum(one.planned[kind] - one.compiled[kind] for kind in ("reduce_scatter", "all_gather"))
    if more <= 0 or less <= 0 or not _close(more, 2 * less) or not _close(compiled, planned + more - less):
        return ""
    gathers = one.planned["all_gather"] - one.compiled["all_gather"] > 0.5 * less
    padded, kept = "gathers are AllReduces of blocks padded with zeros", "an AllReduce is kept where a scatter would do"
    return f"{padded if gathers else kept}: {more / 1e9:.2f} GB instead of {less / 1e9:.2f} GB"


def _widened(one: Sent, planned: float, compiled: float) -> str:
    """Reductions in fp32 of what was planned in bf16."""
    for kind in ("all_reduce", "reduce_scatter"):
        twice = one.planned[kind] and _close(one.compiled[kind], 2 * one.planned[kind])
        rest = planned - one.planned[kind]
        if twice and (not rest or _close(compiled - one.compiled[kind], rest)):
            return f"the compiler adds up in fp32: {kind} sends twice the planned {one.planned[kind] / 1e9:.2f} GB"
    return ""


def _padded(one: Sent, planned: float, compiled: float) -> str:
    """Blocks filled up to whole tiles, and the sends that put them right; other scatters may be AllReduces."""
    sends = _total(each for each in one.exchanges if each.padding)
    if sends and compiled > planned and _close(compiled - sends, planned):
        return f"scattered blocks are filled up to whole tiles: {sends / 1e9:.2f} GB more"
    more = one.compiled["all_reduce"] - one.planned["all_reduce"]
    less = one.planned["reduce_scatter"] - (one.compiled["reduce_scatter"] - sends)
    kept = sends and more > 0 and less > 0 and _close(more, 2 * less)
    if not kept or not _close(compiled - 2 * sends, planned + more - less):
        return ""
    whole = f"an AllReduce is kept where a scatter would do ({more / 1e9:.2f} GB instead of {less / 1e9:.2f} GB)"
    return f"{whole}, and other scattered blocks are filled up to whole tiles ({2 * sends / 1e9:.2f} GB more)"


def _cast_early(one: Sent, planned: float, compiled: float) -> str:
    """A ring's gradients on their last way home: what will be cast to bf16 there is cast before it is sent."""
    home = [move for move in one.moves if move.kind == "permute" and move.what.startswith("d")]
    there = {move.what: move.times for move in one.moves if move.kind == "permute" and move.phase == "forward"}
    halves = [move.wire_bytes * max(move.times - there.get(move.what.removeprefix("d"), 0), 0) / 2 for move in home]
    for count in range(len(halves), 0, -1):
        for chosen in itertools.combinations(halves, count):
            saved = sum(chosen)
            if saved and math.isclose(planned - saved, compiled, rel_tol=0.01):
                return f"gradients are cast to bf16 before their last hop of the ring: {saved / 1e9:.2f} GB less"
    return ""


def _hoisted(one: Sent, planned: float, compiled: float) -> str:
    """Fewer executions of the same collective: a value that was still there is not moved again."""
    if compiled >= planned:
        return ""
    ours, theirs = leftovers(one.moves, one.exchanges)
    saved, extra = sum(each.total_bytes for each in ours), sum(each.total_bytes for each in theirs)
    if extra < TOLERANCE * planned and _close(compiled + saved, planned):
        return f"the compiler keeps what was to be moved again: {saved / 1e9:.2f} GB less"
    return ""


def _around_stages(one: Sent, planned: float, compiled: float) -> str:
    """What the ranks of a pipeline all do before and after they walk through its schedule."""
    ours, theirs = leftovers(one.moves, one.exchanges)
    missing, more = (sum(each.total_bytes for each in found) for found in (ours, theirs))
    outside = all(STAGE not in each.op_name for each in theirs)
    if (
        not one.piped
        or not more
        or not outside
        or missing > TOLERANCE * planned
        or not _close(compiled - more, planned)
    ):
        return ""
    return (
        "every rank of the pipeline has the embedding, the head and layers of another kind than the stages', and "
        "adds up their gradients over all of them; with several chunks to a rank, layers go to the ranks of their "
        f"chunks and their gradients back: {more / 1e9:.2f} GB"
    )


def leftovers(moves: Sequence[LedgerLine], exchanges: Sequence[Exchange]) -> tuple[list[Unmatched], list[Unmatched]]:
    """What only the plan has, and what only the compiler has: the same kind, axes and bytes each time, more often."""
    planned: dict[tuple[str, Axes, int], list[LedgerLine]] = defaultdict(list)
    compiled: dict[tuple[str, Axes, int], list[Exchange]] = defaultdict(list)
    for move in moves:
        planned[move.kind, tuple(sorted(move.axes)), round(move.wire_bytes)].append(move)
    for each in exchanges:
        compiled[each.kind, tuple(sorted(each.axes)), round(each.wire_bytes)].append(each)
    ours: list[Unmatched] = []
    theirs: list[Unmatched] = []
    for key in {**planned, **compiled}:
        kind, axes, size = key
        more = sum(move.times for move in planned[key]) - sum(each.times for each in compiled[key])
        found = (kind, axes, float(size) * abs(more), int(abs(more)))
        if more > 0:
            one = planned[key][0]
            ours.append(Unmatched(*found, f"{one.carries} {one.what} of {one.section}, {one.phase}"))
        elif more < 0:
            one = compiled[key][0]
            theirs.append(Unmatched(*found, one.name, one.op_name, one.source))
    return ours, theirs


def unmatched(
    moves: Sequence[LedgerLine], exchanges: Sequence[Exchange], most: int = 12
) -> tuple[tuple[Unmatched, ...], tuple[Unmatched, ...]]:
    """The largest leftovers of both sides."""
    least = NEGLIGIBLE * (sum(move.total("wire_bytes") for move in moves) or 1.0)

    def largest(found: list[Unmatched]) -> tuple[Unmatched, ...]:
        worth = [each for each in found if each.total_bytes > least]
        return tuple(sorted(worth, key=lambda each: -each.total_bytes)[:most])

    ours, theirs = leftovers(moves, exchanges)
    return largest(ours), largest(theirs)


def what_travels(moves: Sequence[LedgerLine], exchange: Exchange) -> str:
    """What a compiled collective carries, by the planned move that has its kind, axes and bytes; empty if there is
    none."""
    for move in moves:
        same = move.kind == exchange.kind and sorted(move.axes) == sorted(exchange.axes)
        if same and math.isclose(move.wire_bytes, exchange.wire_bytes, rel_tol=1e-3):
            return move.carries
    return ""


ARGUMENTS, PEAK, HOST, FLOPS = 0.002, 0.15, 0.02, 0.01
"""How far the compiler may be from the plan: bytes of arguments, the peak (whose working set is modelled), what the
host holds, and FLOPs."""


def verify(
    request: Request, timeout: float = 900.0, memory: float = 8e9, cached: bool = True, stack: str = "dragonscale"
) -> VerifyReport:
    """Compile a request apart and lay what came out beside its plan, the ledger of our own program; where the plan was
    made for another stack, say what that one does otherwise."""
    compiling.check_installed(request)  # before any work
    planned = plan_of(request)
    report = compare(request, planned, compiling.compile_apart(request, timeout, memory, cached))
    return replace(report, stack=stack, stack_differences=stack_differences(request, stack))


def compare(request: Request, planned: Planned, made: Made) -> VerifyReport:
    """The report of what a compiler made of a plan."""
    limit = device_memory(request)
    fits = not any("per chip" in problem for problem in planned.problems)
    effort = (request, made.versions, made.seconds, made.resident_bytes)
    room = {"memory": planned.memory, "limit_bytes": limit, "fits_planned": fits}
    report = VerifyReport(*effort, compiled=False, verdict="differs", **room)
    if made.compiled is None:
        return _without_program(report, planned, made)
    compiled, memory = made.compiled, made.compiled.memory
    assert memory is not None
    logical = sum(parameter.logical_bytes for parameter in compiled.parameters)
    padded = sum(parameter.padded_bytes for parameter in compiled.parameters)
    moved = planned.moves, compiled.collectives
    axes, (ours, theirs) = axis_lines(*moved), unmatched(*moved)
    lines = {
        "arguments": _line("arguments", "bytes", planned.arguments_bytes, logical, ARGUMENTS),
        "peak": _line("peak memory", "bytes", planned.peak_bytes, memory.peak_bytes, PEAK),
        "flops": _flops_line(planned, compiled),
    }
    if planned.host_bytes or memory.host_bytes:
        lines["host"] = _line("host memory", "bytes", planned.host_bytes, memory.host_bytes, HOST)
    cycles_s, slowest = _times(request, compiled)
    return replace(
        report,
        compiled=True,
        verdict=_verdict([*lines.values(), *(each.line for each in axes)]),
        **lines,
        fits_compiled=memory.peak_bytes <= limit,
        axes=axes,
        only_planned=ours,
        only_compiled=theirs,
        overlap=_overlap(planned, compiled) if request.mode == "full" else (),
        padding_bytes=padded - logical,
        cycles_s=cycles_s,
        slowest=slowest,
        algorithms=_algorithms(compiled),
        unknown=tuple(f"{each.what} ({each.op_name})" for each in compiled.unknown),
        advice=_advice(planned, memory.peak_bytes, limit),
    )


def _line(name: str, unit: str, planned: float, compiled: float, tolerance: float, why: str = "") -> VerifyLine:
    near = abs(compiled - planned) <= tolerance * planned
    verdict = "agrees" if near else "explained" if why else "differs"
    return VerifyLine(name, unit, planned, compiled, tolerance, verdict, why)


def _flops_line(planned: Planned, compiled: Compiled) -> VerifyLine:
    why = ""
    if compiled.unknown:
        why = f"{len(compiled.unknown)} calls of the compiled program do not say what they multiply"
    elif planned.few_rows:
        few = "experts have fewer rows than tensor cores take"
        why = f"{few}: the compiler fills them up, or writes loops instead of matmuls"
    return _line("matmul FLOPs", "FLOPs", planned.flops, compiled.flops, FLOPS, why)


def _verdict(lines: list[VerifyLine]) -> str:
    verdicts = {line.verdict for line in lines}
    return next(word for word in ("differs", "explained", "agrees") if word in verdicts)


def _without_program(report: VerifyReport, planned: Planned, made: Made) -> VerifyReport:
    full, limit = made.out_of_memory, report.limit_bytes
    if full is None:
        return replace(report, trouble=made.failed)
    asked, there = full.asked_bytes / 2**30, full.capacity_bytes / 2**30
    return replace(
        report,
        verdict="differs" if report.fits_planned else "agrees",
        fits_compiled=False,
        peak=_line("peak memory", "bytes", planned.peak_bytes, full.asked_bytes, PEAK),
        trouble=f"the compiler asks for {asked:.2f} GiB of the {there:.2f} GiB there are",
        largest=tuple((each.shape or each.label, each.size_bytes, each.op_name) for each in full.buffers),
        advice=_advice(planned, full.asked_bytes, limit),
    )


def _advice(planned: Planned, peak: float, limit: float) -> str:
    """What to change where the compiled program does not fit."""
    if peak <= limit:
        return ""
    largest = max(planned.memory, key=lambda part: planned.memory[part])
    cure = explanations("cures").get(largest, "more chips, or a smaller microbatch")
    return f"{peak / limit - 1:.0%} too large; most of it is {largest}: {cure}."


def _overlap(planned: Planned, compiled: Compiled) -> tuple[OverlapLine, ...]:
    """Weights and gradients can travel any time and should hide; activations are waited for, but for
    those in a ring."""
    sums: dict[tuple[str, tuple[str, ...], str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for each in compiled.collectives:
        what = what_travels(planned.moves, each)
        if what in ("weight", "gradient", "activation"):
            found = sums[each.kind, tuple(sorted(each.axes)), what]
            found[_hidden(each)] += each.wire_bytes * each.times
    lines = []
    for (kind, axes, what), (shown, hidden) in sums.items():
        planner = "hidden" if what != "activation" or kind == "permute" else "exposed"
        compiler = "hidden" if hidden > shown else "exposed"
        lines.append(OverlapLine(kind, axes, what, shown + hidden, planner, compiler, planner == compiler))
    return tuple(sorted(lines, key=lambda each: -each.total_bytes))


def _hidden(each: Exchange) -> bool:
    """Whether matmuls are scheduled while it is under way."""
    return each.decomposed or (each.how == "async" and bool(each.window_flops))


def _times(request: Request, compiled: Compiled) -> tuple[float | None, tuple[tuple[str, float], ...]]:
    """The compiler's estimated cycles as seconds, of all kernels and of the slowest (TPU, `full` mode)."""
    piece, kernels = parse_slice(request.slice), compiled.cycles.kernels
    if piece.chip.kind != "tpu" or request.mode != "full":
        return None, ()
    clock = tpu_target.CLOCKS[tpu_target.generation(piece)]
    slowest = tuple((kernel.op_name or kernel.source, kernel.cycles / clock) for kernel in kernels[:8])
    return compiled.cycles.total / clock if kernels else None, slowest


def _algorithms(compiled: Compiled) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for each in compiled.collectives:
        if each.algorithm:
            found[each.algorithm] += each.times
    return dict(found)
