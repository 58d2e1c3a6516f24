"""A plan verified: the compiler's program beside the plan, number by number."""

from collections import defaultdict

from msgspec.structs import replace

from dragonscale.evidence.verify.compiling import check_installed, compile_apart
from dragonscale.evidence.verify.matching import axis_lines, unmatched, what_travels
from dragonscale.evidence.verify.planned import Planned, device_memory, plan_of, stack_differences
from dragonscale.evidence.verify.records import Made, OverlapLine, Request, VerifyLine, VerifyReport, explanations
from dragonscale.evidence.xla import tpu_target
from dragonscale.evidence.xla.compiled import Compiled, Exchange
from dragonscale.physics.hardware import parse_slice

ARGUMENTS, PEAK, FLOPS = 0.002, 0.15, 0.01
"""How far the compiler may be from the plan: bytes of arguments, the peak (whose working set is modelled), and FLOPs.
"""


def verify(
    request: Request, timeout: float = 900.0, memory: float = 8e9, cached: bool = True, stack: str = "dragonscale"
) -> VerifyReport:
    """Compile a request apart and lay what came out beside its plan, the ledger of our own program; where the plan was
    made for another stack, say what that one does otherwise."""
    check_installed(request)  # before any work
    planned = plan_of(request)
    report = compare(request, planned, compile_apart(request, timeout, memory, cached))
    return replace(report, stack=stack, stack_differences=stack_differences(request, stack))


def compare(request: Request, planned: Planned, made: Made) -> VerifyReport:
    """The report of what a compiler made of a plan."""
    limit = device_memory(request)
    fits = not any("per chip" in problem for problem in planned.problems)
    report = VerifyReport(
        request,
        made.versions,
        made.seconds,
        made.resident_bytes,
        False,
        "differs",
        memory=planned.memory,
        limit_bytes=limit,
        fits_planned=fits,
    )
    if made.compiled is None:
        return _without_program(report, planned, made)
    compiled, memory = made.compiled, made.compiled.memory
    assert memory is not None
    logical = sum(parameter.logical_bytes for parameter in compiled.parameters)
    padded = sum(parameter.padded_bytes for parameter in compiled.parameters)
    axes = axis_lines(planned.moves, compiled.collectives)
    ours, theirs = unmatched(planned.moves, compiled.collectives)
    lines = {
        "arguments": _line("arguments", "bytes", planned.arguments_bytes, logical, ARGUMENTS),
        "peak": _line("peak memory", "bytes", planned.peak_bytes, memory.peak_bytes, PEAK),
        "flops": _flops_line(planned, compiled),
    }
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
