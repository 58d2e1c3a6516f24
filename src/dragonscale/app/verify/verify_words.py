"""A verification in sentences: what was compiled, what came of it, and what to change."""

from collections.abc import Iterator

from dragonscale.errors import INFEASIBLE, MISSED
from dragonscale.evidence.verify.records import VerifyLine, VerifyReport
from dragonscale.evidence.verify.request import Request
from dragonscale.physics.units import render

AGREES, EXPLAINED, DIFFERS, NO_ROOM, FAILED = "agrees", "explained", "differs", "does not fit", "not compiled"
OK = 0
_PROGRAMS = {"train": "training step", "prefill": "prefill", "decode": "decode step"}


def outcome(report: VerifyReport) -> str:
    """The whole verification in one word or two."""
    if not report.fits_compiled:
        return NO_ROOM
    return report.verdict if report.compiled else FAILED


def exit_code(report: VerifyReport) -> int:
    """0: agrees, or every difference is explained; 3: the compiler has no room for it; 4: it differs, or did not
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
    many = f"{request.batch:,} {what}{'' if request.batch == 1 else 's'}"
    if request.program == "decode":
        return f"{many} with room for {request.sequence:,} tokens each"
    return f"{many} of {request.sequence:,} tokens"


def effort(report: VerifyReport) -> str:
    """Which compiler, how it was asked, and what it took."""
    names = [f"{name} {version}" for name, version in report.versions.items() if name not in ("jax", "jaxlib")]
    by = ", ".join(names or [f"{name} {version}" for name, version in report.versions.items()]) or "XLA"
    took = f"{render(report.seconds, 's')} and {render(report.resident_bytes, 'bytes')} of this machine"
    return f"{'compiled' if report.compiled else 'tried'} in {report.request.mode} mode by {by}: {took}"


def sentence(text: str, most: int = 700) -> str:
    """A remark as a sentence; a compiler's message of pages is cut.

    >>> sentence("the compiler asks for 2 GiB")
    'The compiler asks for 2 GiB.'
    """
    said = " ".join(text.split())
    said = said if len(said) <= most else said[:most] + " …"
    return said[:1].upper() + said[1:] + ("" if said.endswith((".", "…", "!", "?")) or not said else ".")


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
    return f"{part:+.0f}%" if abs(part) >= 10 else f"{part:+.1f}%"


def judged(report: VerifyReport) -> Iterator[tuple[str, VerifyLine]]:
    """Every line that has a verdict, with its name in a sentence."""
    for name, line in (("arguments", report.arguments), ("peak memory", report.peak), ("FLOPs", report.flops)):
        if line is not None:
            yield name, line
    for axis in report.axes:
        yield f"bytes over {over(axis.axes)}", axis.line


def closing(report: VerifyReport) -> str:
    """The verdict and what to change, in a sentence or two."""
    found = outcome(report)
    if found == NO_ROOM:
        said = "as the planner said" if not report.fits_planned else "though the planner had accepted it"
        usual = "Split the state over more chips, recompute more (remat=block), or take a smaller batch."
        return f"The program does not fit the memory of a chip, {said}. {sentence(report.advice) or usual}"
    if found == FAILED:
        return "The compiler gave no program: nothing was compared. Take another plan, or report the message above."
    lines = list(judged(report))
    wrong = [f"{name} {change(line)}" for name, line in lines if line.verdict == DIFFERS]
    told = [f"{name} {change(line)}" for name, line in lines if line.verdict == EXPLAINED]
    if found == DIFFERS:
        return f"The plan and the compiler differ{': ' + ', '.join(wrong) if wrong else ''}. {_look(report)}"
    if found == EXPLAINED:
        listed = f" ({', '.join(told)})" if told else ""
        return f"{_holds(report)}: what differs is explained{listed}. {_next(report)}"
    return f"{_holds(report)}: all {len(lines)} numbers agree. {_next(report)}"


def _holds(report: VerifyReport) -> str:
    """That plan and compiler agree, which is no praise of a plan that its chips cannot hold."""
    return "The plan holds" if report.fits_planned else "The numbers agree; by the planner the program does not fit"


def _look(report: VerifyReport) -> str:
    if report.unknown:
        return f"The compiler emitted something that could not be read ({report.unknown[0]}): report it."
    for one in report.only_compiled:
        if not one.why:
            where = f" at {one.source}" if one.source else ""
            return f"Start with the {one.kind} over {over(one.axes)}{where} that only the compiler has."
    for one in report.only_planned:
        if not one.why:
            return f"Start with the {one.kind} over {over(one.axes)} that was planned and is not there."
    for one in report.overlap:
        if not one.agrees:
            return f"Start with the {one.kind} over {over(one.axes)}: planned {one.planned}, compiled {one.compiled}."
    return "Trust the compiler's numbers for this plan."


def _next(report: VerifyReport) -> str:
    """What to do with a plan that holds."""
    if report.request.mode == "canonical":
        return "--mode full adds overlap."
    wrong = max((one for one in report.overlap if not one.agrees), key=lambda one: one.total_bytes, default=None)
    if wrong is None:
        return "Change nothing."
    size = render(wrong.total_bytes, "bytes")
    moved = f"{wrong.kind} over {over(wrong.axes)} ({wrong.what}, {size})"
    return f"In its times count the {moved} as {wrong.compiled}: it was planned {wrong.planned}."
