"""How long an operation takes at best, what bounds it, and where that changes."""

import msgspec

from dragonscale.errors import InputError, unknown
from dragonscale.hardware import Chip
from dragonscale.notation import Einsum, parse_einsum
from dragonscale.numbers import Number
from dragonscale.roofline import Roofline, crossovers, einsum_cost, rates_of, roofline, symbol


class Resource(msgspec.Struct):
    """What one resource does for the operation: seconds if every size is known, and the formula if not."""

    name: str
    formula: str
    seconds: float | None = None


class CrossoverRow(msgspec.Struct):
    variable: str
    value: float
    below: str
    above: str


class Sample(msgspec.Struct):
    """The roofline at one value of the free dim."""

    value: float
    lower_s: float
    upper_s: float
    bound_by: str
    attainable_flops_per_s: float
    intensity_flops_per_byte: float


class RooflineReport(msgspec.Struct):
    expression: str
    chip: str
    compute_dtype: str
    memory: str
    sizes: dict[str, int]
    free: list[str]
    peak_flops_per_s: float
    bandwidth_bytes_per_s: float
    critical_intensity_flops_per_byte: float
    flops: float | None
    bytes: float | None
    intensity_flops_per_byte: float | None
    resources: list[Resource]
    lower_s: float | None
    upper_s: float | None
    bound_by: str | None
    attainable_flops_per_s: float | None
    crossovers: list[CrossoverRow]
    samples: list[Sample]
    advice: str


NAMES = {"matrix": "compute", "vector": "vector unit"}


def _resource_name(name: str) -> str:
    return NAMES.get(name, name)


def prepare(expression: str, sizes: dict[str, int]) -> tuple[Einsum, dict[str, Number], list[str]]:
    """The einsum, its sizes with symbols for those not given, and the names of the latter."""
    line = parse_einsum(expression)
    for name in sizes:
        if name not in line.indices:
            raise unknown("dim of this expression called", name, line.indices)
    known = line.sizes | sizes
    free = [index for index in line.indices if index not in known]
    return line, known | {name: symbol(name) for name in free}, free


def roofline_report(
    expression: str, chip: Chip, sizes: dict[str, int] | None = None, level: str = "hbm", weights_only: bool = False
) -> RooflineReport:
    """The roofline of an einsum such as `bf16[B,8192] @ bf16[8192,28672]` on one chip.

    `level` is the memory (or `pcie`, `dcn`) the operands come from. `weights_only` counts only the bytes of the last
    operand, the book's approximation for small batches.
    """
    line, all_sizes, free = prepare(expression, sizes or {})
    if line.axes:
        raise InputError(
            f"{expression!r} is sharded over {', '.join(line.axes)}; `dscale shard` answers for that, a roofline is of one chip."
        )
    result = _evaluate(line, all_sizes, chip, level, weights_only)
    (unit, dtype), _ = next(iter(result.cost.flops.items()))
    whole = not free
    report = RooflineReport(
        expression=str(line),
        chip=chip.name,
        compute_dtype=dtype,
        memory=level,
        sizes={name: int(size) for name, size in all_sizes.items() if name not in free},
        free=free,
        peak_flops_per_s=chip.peak(dtype, unit),
        bandwidth_bytes_per_s=chip.bandwidth(level),
        critical_intensity_flops_per_byte=chip.intensity(dtype, unit, level),
        flops=float(result.cost.total_flops) if whole else None,
        bytes=float(result.cost.bytes[level]) if whole else None,
        intensity_flops_per_byte=float(result.cost.intensity(level)) if whole else None,
        resources=[
            _resource(name, seconds, whole) for name, seconds in _formulas(line, level, weights_only, result).items()
        ],
        lower_s=float(result.lower) if whole else None,
        upper_s=float(result.upper) if whole else None,
        bound_by=_resource_name(result.bound_by) if whole else None,
        attainable_flops_per_s=float(result.flops_per_second) if whole else None,
        crossovers=_crossovers(line, all_sizes, free, chip, level, weights_only),
        samples=_samples(line, all_sizes, free, chip, level, weights_only),
        advice="",
    )
    report.advice = advice(report)
    return report


def _counted(line: Einsum, weights_only: bool) -> tuple[int, ...] | None:
    """The arrays whose bytes count: all, or the last operand alone."""
    return (len(line.operands) - 1,) if weights_only else None


def _evaluate(line: Einsum, sizes: dict[str, Number], chip: Chip, level: str, weights_only: bool) -> Roofline:
    cost = einsum_cost(line, sizes, level=level, counted=_counted(line, weights_only))
    return roofline(cost, rates_of(chip))


def _formulas(line: Einsum, level: str, weights_only: bool, result: Roofline) -> dict[str, tuple[str, Number]]:
    """Each resource's time as algebra in the dims' letters over C and W, beside its value."""
    letters = {index: symbol(index) for index in line.indices}
    cost = einsum_cost(line, letters, level=level, counted=_counted(line, weights_only))
    import sympy

    texts = {name: f"{sympy.factor_terms(cost.total_flops)} / C" for name in result.seconds if name in NAMES}
    texts[level] = f"({sympy.factor_terms(sympy.expand(cost.bytes[level]))}) / W"
    return {name: (texts[name], seconds) for name, seconds in result.seconds.items()}


def _resource(name: str, found: tuple[str, Number], whole: bool) -> Resource:
    return Resource(_resource_name(name), found[0], float(found[1]) if whole else None)


def _crossovers(
    line: Einsum, sizes: dict[str, Number], free: list[str], chip: Chip, level: str, weights_only: bool
) -> list[CrossoverRow]:
    """In the one free dim; or, if none is free, in each dim with the others as given."""
    if len(free) > 1:
        return []
    rows: list[CrossoverRow] = []
    for name in free or [index for index in line.indices if not index.startswith("_")]:
        variable = symbol(name)
        result = _evaluate(line, sizes | {name: variable}, chip, level, weights_only)
        if all(variable in getattr(seconds, "free_symbols", ()) for seconds in result.seconds.values()):
            rows += [
                CrossoverRow(name, float(point.value), _resource_name(point.below), _resource_name(point.above))
                for point in crossovers(result, variable)
            ]
    return rows


def _samples(
    line: Einsum, sizes: dict[str, Number], free: list[str], chip: Chip, level: str, weights_only: bool
) -> list[Sample]:
    """The free dim at powers of four, all in one call."""
    if len(free) != 1:
        return []
    import numpy

    values = numpy.array([4.0**power for power in range(10)])
    result = _evaluate(line, sizes | {free[0]: values}, chip, level, weights_only)
    names = list(result.seconds)
    binding, lower, upper = result.binding(), result.lower, result.upper
    rates, intensity = result.flops_per_second, result.cost.intensity(level)
    return [
        Sample(
            float(v),
            float(lower[i]),
            float(upper[i]),
            _resource_name(names[binding[i]]),
            float(rates[i]),
            float(intensity[i]),
        )
        for i, v in enumerate(values)
    ]


def advice(report: RooflineReport) -> str:
    """What bounds the answer and what to change."""
    first = report.crossovers[0] if report.crossovers else None
    change = (
        f"{first.variable} = {first.value:,.4g} is where {first.above} takes over from {first.below}" if first else ""
    )
    if report.bound_by is None:
        if len(report.free) > 1:
            return f"Give sizes (--sizes {report.free[0]}=…) for times; compute binds above {report.critical_intensity_flops_per_byte:,.4g} FLOPs per byte."
        ever = f"always bound by {report.samples[-1].bound_by}, whatever {report.free[0]} is" if report.samples else ""
        return f"{change}." if change else f"{ever[0].upper()}{ever[1:]}."
    tail = f"; {change}" if change else "; no single dim changes that"
    return f"Bound by {report.bound_by}{tail}."


def chart_points(report: RooflineReport) -> list[tuple[str, float, float]]:
    """The operation as points for a roofline chart: one, or one for each sample that stands apart from the last."""
    if report.intensity_flops_per_byte is not None and report.attainable_flops_per_s is not None:
        return [(report.expression, report.intensity_flops_per_byte, report.attainable_flops_per_s)]
    points: list[tuple[str, float, float]] = []
    for sample in report.samples:
        if not points or sample.intensity_flops_per_byte > 1.5 * points[-1][1]:
            name = f"{report.free[0]}={sample.value:,.0f}"
            points.append((name, sample.intensity_flops_per_byte, sample.attainable_flops_per_s))
    return points
