"""A verification in sentences: what was compiled, what came of it, and what to change.

A verification as rows ready to be shown: one reading of the record for the terminal, for HTML and for whatever comes
next.

Numbers become text here and nowhere else, so no two faces can disagree about one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.errors import INFEASIBLE, MISSED
from dragonscale.evidence.verify.records import Request, Unmatched, VerifyLine, VerifyReport
from dragonscale.physics.units import render

# What came of a verification.
AGREES = "agrees"
EXPLAINED = "explained"
DIFFERS = "differs"
NO_ROOM = "does not fit"
FAILED = "not compiled"
OK = 0
_FITS = {True: "fits", False: "does not fit"}
_PROGRAMS = {"train": "training step", "prefill": "prefill", "decode": "decode step"}


def outcome(report: VerifyReport) -> str:
    """The whole verification in one word or two."""
    if not report.fits:
        return NO_ROOM
    if report.compiled or not report.fits_compiled:
        return report.verdict
    return FAILED


def exit_code(report: VerifyReport) -> int:
    """0: agrees, or every difference is explained; 3: its own stack has no room for it; 4: it differs, or did not
    compile."""
    return {AGREES: OK, EXPLAINED: OK, NO_ROOM: INFEASIBLE}.get(outcome(report), MISSED)


def title(request: Request) -> str:
    """What was compiled.

    >>> print(title(Request("train", "llama3-8b", "h100:8", "fsdp=8,remat=block", 16, 8192)))
    llama3-8b on h100:8: a training step of fsdp=8,remat=block
    """
    return f"{request.model} on {request.slice}: a {_PROGRAMS[request.program]} of {request.plan}"


def work(request: Request) -> str:
    """How large the program is.

    >>> work(Request("decode", "llama3-8b", "h100:8", "tensor=8", 64, 2560))
    '64 sequences with room for 2,560 tokens each'
    """
    what = {"train": "sequence", "prefill": "prompt", "decode": "sequence"}[request.program]
    many = f"{request.batch:,} {what}{'s' * (request.batch != 1)}"
    if request.program == "decode":
        return f"{many} with room for {request.sequence:,} tokens each"
    return f"{many} of {request.sequence:,} tokens"


def effort(report: VerifyReport) -> str:
    """Which compiler, how it was asked, and what it took."""
    # the compiler's own package says more than JAX, where there is one
    packages = {name: version for name, version in report.versions.items() if name not in ("jax", "jaxlib")}
    by = ", ".join(f"{name} {version}" for name, version in (packages or report.versions).items()) or "XLA"
    took = f"{render(report.seconds, 's')} and {render(report.resident_bytes, 'bytes')} of this machine"
    return f"{'compiled' if report.compiled else 'tried'} in {report.request.mode} mode by {by}: {took}"


def sentence(text: str, max_length: int = 700) -> str:
    """A remark as a sentence; a compiler's message of pages is cut.

    >>> sentence("the compiler asks for 2 GiB")
    'The compiler asks for 2 GiB.'
    """
    text = " ".join(text.split())
    if len(text) > max_length:
        text = f"{text[:max_length]} …"
    if text and not text.endswith((".", "…", "!", "?")):
        text += "."
    return text[:1].upper() + text[1:]


def over(axes: tuple[str, ...]) -> str:
    """Mesh axes by name.

    >>> over(("fsdp", "tensor")), over(())
    ('fsdp and tensor', 'no mesh axis')
    """
    return " and ".join(axes) or "no mesh axis"


def change(line: VerifyLine) -> str:
    """By how much the compiler's number differs.

    >>> (
    ...     change(VerifyLine("peak", "bytes", 100.0, 112.0, 0.07, "differs")),
    ...     change(VerifyLine("sent", "bytes", 0.0, 5.0, 0.0, "differs")),
    ... )
    ('+12%', 'not planned')
    """
    if line.ratio is None:
        return "not planned"
    part = 100 * (line.ratio - 1)
    if abs(part) >= 10:
        return f"{part:+.0f}%"
    return f"{part:+.1f}%"  # tolerances are of a few percent: there a tenth counts


def judged(report: VerifyReport) -> Iterator[tuple[str, VerifyLine]]:
    """Every line that has a verdict, with its name in a sentence."""
    memory = (("arguments", report.arguments), ("peak memory", report.peak), ("host memory", report.host))
    for name, line in (*memory, ("FLOPs", report.flops)):
        if line is not None:
            yield name, line
    for axis in report.axes:
        yield f"bytes over {over(axis.axes)}", axis.line


def closing(report: VerifyReport) -> str:
    """The verdict and what to change, in a sentence or two."""
    result = outcome(report)
    if result == NO_ROOM and report.fits_compiled:
        would_hold = f"stack {report.stack} would hold {quantity(report.stack_bytes, 'bytes')} on the fullest chip"
        return f"The plan does not fit the memory of a chip under its own stack: {would_hold}; our own program fits."
    if result == NO_ROOM:
        expected = "as the planner said"
        if report.fits_planned:
            expected = "though the planner had accepted it"
        usual = "Split the state over more chips, recompute more (remat=block), or take a smaller batch."
        return f"The program does not fit the memory of a chip, {expected}. {sentence(report.advice) or usual}"
    if result == FAILED:
        return "The compiler gave no program: nothing was compared. Take another plan, or report the message above."
    lines = list(judged(report))
    # the numbers that have the verdict of the whole
    changed = ", ".join(f"{name} {change(line)}" for name, line in lines if line.verdict == result)
    if result == DIFFERS:
        return f"The plan and the compiler differ{changed and ': '}{changed}. {_look(report)}"
    if result == EXPLAINED:
        listed = ""
        if changed:
            listed = f" ({changed})"
        return f"{_holds(report)}: what differs is explained{listed}. {_next(report)}"
    return f"{_holds(report)}: all {len(lines)} numbers agree. {_next(report)}"


def _holds(report: VerifyReport) -> str:
    """That plan and compiler agree, which is no praise of a plan that its chips cannot hold."""
    if report.fits_planned and report.fits_compiled:
        return "The plan holds"
    program = "by the planner the program"
    if report.stack != "dragonscale":  # another stack's plan may fit, and does not hold what we compiled
        program = "our own program"
    return f"The numbers agree; {program} does not fit"


def _look(report: VerifyReport) -> str:
    """Where to begin with a plan and a compiler that differ: at what nothing explains."""
    if report.unknown:
        return f"The compiler emitted something that could not be read ({report.unknown[0]}): report it."
    for row in report.only_compiled:
        if not row.why:
            kind = f"{row.kind} over {over(row.axes)}"
            if row.source:  # the line of the program that it comes from
                kind += f" at {row.source}"
            return f"Start with the {kind} that only the compiler has."
    for row in report.only_planned:
        if not row.why:
            return f"Start with the {row.kind} over {over(row.axes)} that was planned and is not there."
    for row in report.overlap:
        if not row.agrees:
            return f"Start with the {row.kind} over {over(row.axes)}: planned {row.planned}, compiled {row.compiled}."
    return "Trust the compiler's numbers for this plan."


def _next(report: VerifyReport) -> str:
    """What to do with a plan that holds."""
    # without XLA's scheduling passes nothing overlaps
    if report.request.mode == "canonical":
        return "--passes full adds overlap."
    # the largest transfer whose overlap was planned otherwise
    wrong = max((row for row in report.overlap if not row.agrees), key=lambda row: row.total_bytes, default=None)
    if wrong is None:
        return "Change nothing."
    size = render(wrong.total_bytes, "bytes")
    moved = f"{wrong.kind} over {over(wrong.axes)} ({wrong.what}, {size})"
    return f"In its times count the {moved} as {wrong.compiled}: it was planned {wrong.planned}."


# Digits of a quantity.
DIGITS = 4


@dataclass(frozen=True)
class Row:
    """A number planned and compiled. The shares (0 to 1) are lengths of bars: of a chip's memory for memory, of the
    busiest mesh axes for bytes sent, of the larger of both for FLOPs. `below` are the parts of the number."""

    name: str
    planned: str
    compiled: str
    ratio: str
    verdict: str = ""
    why: str = ""
    planned_share: float = 0.0
    compiled_share: float = 0.0
    below: tuple["Row", ...] = ()


@dataclass(frozen=True)
class Item:
    """A line of a list: what it is, how much, and what is known about it."""

    name: str
    amount: str
    about: tuple[str, ...] = ()


def ratio_text(planned: float, compiled: float) -> str:
    """Compiled over planned, with enough digits to tell it from one.

    >>> ratio_text(100, 112), ratio_text(1e9, 1.0004e9), ratio_text(0, 3), ratio_text(0, 0), ratio_text(5, 1e9)
    ('1.120', '1.0004', 'new', '–', '>999')
    """
    if not planned and not compiled:
        return "–"
    if not planned:
        return "new"
    ratio = compiled / planned
    if ratio > 999:
        return ">999"
    if abs(ratio - 1) < 0.01:
        return f"{ratio:.4f}"
    if ratio < 10:
        return f"{ratio:.3f}"
    return f"{ratio:.1f}"


def quantity(value: float, unit: str) -> str:
    """A number with its unit.

    >>> quantity(1.5e12, "FLOPs"), quantity(2e9, "bytes")
    ('1.5TFLOP', '2GB')
    """
    return render(value, {"FLOPs": "FLOP"}.get(unit, unit), DIGITS)


def totals(report: VerifyReport) -> list[Row]:
    """What the program holds and does on one chip."""
    # bars of memory are parts of what a chip has, those of FLOPs of the larger number
    rows: list[Row] = []
    for name, line, scale in (
        ("arguments", report.arguments, report.limit_bytes),
        ("peak memory", report.peak, report.limit_bytes),
        ("host memory", report.host, 0.0),
        ("matmul FLOPs", report.flops, 0.0),
    ):
        if line:
            rows.append(_row(name, line, max(scale, line.planned, line.compiled)))
    return rows


def axis_rows(report: VerifyReport) -> list[Row]:
    """Bytes that each chip sends, by the mesh axes they travel over, and by kind of collective below."""
    scale = max((max(axis.line.planned, axis.line.compiled) for axis in report.axes), default=0.0)
    rows: list[Row] = []
    for axis in report.axes:
        below = [_part(kind, *sizes, axis.line.unit, scale) for kind, sizes in axis.kinds.items()]
        rows.append(replace(_row(over(axis.axes), axis.line, scale), below=tuple(below)))
    return rows


def _part(name: str, planned: float, compiled: float, unit: str, scale: float) -> Row:
    row = Row(name, quantity(planned, unit), quantity(compiled, unit), ratio_text(planned, compiled))
    if not scale:  # neither side has any: there are no bars to draw
        return row
    return replace(row, planned_share=planned / scale, compiled_share=compiled / scale)


def _row(name: str, line: VerifyLine, scale: float) -> Row:
    part = _part(name, line.planned, line.compiled, line.unit, scale)
    return replace(part, verdict=line.verdict, why=line.why)


def lists(report: VerifyReport) -> dict[str, list[Item]]:
    """What is told as lists, by heading: buffers without room, collectives that one side lacks, slow kernels."""
    parts, buffers = list[Item](), list[Item]()
    for name, size in sorted(report.memory.items(), key=lambda part: -part[1]):
        if size > 0:
            parts.append(Item(name, quantity(size, "bytes")))
    for name, size, reason in report.largest:
        buffers.append(Item(name, quantity(size, "bytes"), tuple(filter(None, (reason,)))))
    return {
        "the planned peak, by part": parts,
        "largest buffers": buffers,
        "only the plan has": list(map(_unmatched, report.only_planned)),
        "only the compiler has": list(map(_unmatched, report.only_compiled)),
        "slowest kernels by the compiler's estimate": [Item(name, quantity(s, "s")) for name, s in report.slowest],
    }


def _unmatched(row: Unmatched) -> Item:
    """A collective that only one side has, with the place in the program it comes from and why."""
    name, size = f"{row.kind} over {over(row.axes)}", quantity(row.total_bytes, "bytes")
    if row.what:
        name += f" ({row.what})"
    if row.times > 1:
        size += f", {row.times:,} times"
    return Item(name, size, tuple(filter(None, (row.op_name, row.source, row.why))))


def stack_items(report: VerifyReport) -> list[Item]:
    """What the plan's own stack does otherwise than the program that was compiled: by switch, the lines it changes."""
    items: list[Item] = []
    for switch in dict.fromkeys(difference.switch for difference in report.stack_differences):
        differences = [difference for difference in report.stack_differences if difference.switch == switch]
        lines, sums = [], []
        # the largest change first
        for difference in sorted(differences, key=lambda difference: -abs(difference.theirs - difference.ours)):
            ours, theirs = (
                _amount(difference.ours, difference.quantity),
                _amount(difference.theirs, difference.quantity),
            )
            lines.append(f"{difference.section}, {difference.phase}: {difference.what} {ours} -> {theirs}")
        for quantity, noun in (("flops", "FLOPs"), ("wire_bytes", "sent"), ("hbm_bytes", "held")):
            change = sum(
                difference.theirs - difference.ours for difference in differences if difference.quantity == quantity
            )
            if change:
                sums.append(f"{_amount(abs(change), quantity)} {'more' if change > 0 else 'less'} {noun}")
        items.append(Item(f"{switch}: {differences[0].why}", ", ".join(sums) or "moved", tuple(lines)))
    return items


def _amount(size: float, name: str) -> str:
    return quantity(size, "FLOPs" if name == "flops" else "bytes")


def remarks(report: VerifyReport) -> list[str]:
    """Facts beside the comparison."""
    texts: list[str] = []
    if report.stack != "dragonscale" and report.peak is not None and report.request.program == "train":
        theirs = quantity(report.stack_bytes, "bytes")
        would = f"stack {report.stack} would hold {theirs} on the fullest chip and {_FITS[report.fits]}"
        texts.append(f"The planned column is our own program; {would}.")
    if report.limit_bytes and (report.compiled or not report.fits_compiled):
        planner, compiler = _FITS[report.fits_planned], _FITS[report.fits_compiled]
        holds = f"A chip holds {quantity(report.limit_bytes, 'bytes')}"
        what = "our own program"
        if report.stack == "dragonscale":
            what = "the plan"
        texts.append(f"{holds}: {what} {planner} by the planner, {compiler} by the compiler.")
    if report.padding_bytes > 0:
        texts.append(f"Layouts pad the arguments by {quantity(report.padding_bytes, 'bytes')}.")
    if report.algorithms:
        chosen = ", ".join(f"{name} {times:,} times" for name, times in report.algorithms.items())
        texts.append(f"Collectives as the compiler chose them: {chosen}.")
    if report.cycles_s is not None:
        texts.append(f"The compiler estimates {quantity(report.cycles_s, 's')} of kernels a run, without the network.")
    if report.unknown:
        texts.append(f"Not understood: {'; '.join(report.unknown)}.")
    return texts
