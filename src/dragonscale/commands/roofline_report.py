"""How long an operation takes at best, what bounds it, and where that changes; or, without a chip, what it counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from dragonscale.commands.record import Record
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.notation import Einsum, parse_einsum
from dragonscale.physics.numbers import Number
from dragonscale.physics.rooflines import Cost, Roofline, crossovers, rates_of, roofline, solve_equal, symbol
from dragonscale.physics.rooflines.given_counts import GivenCounts
from dragonscale.physics.rooflines.operation import Operation, parse_operation
from dragonscale.physics.units import render

NAMES = {"matrix": "compute", "vector": "vector unit"}
_SPELLED = {"hbm": "HBM", "vmem": "VMEM", "smem": "SMEM", "l2": "L2", "pcie": "PCIe", "dcn": "DCN"}


def spelled(resource: str) -> str:
    """A resource as people write it; records keep the short name that flags take.

    >>> spelled("hbm"), spelled("compute")
    ('HBM', 'compute')
    """
    return _SPELLED.get(resource, resource)


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


class IntensityLimit(msgspec.Struct):
    """What the intensity comes to as every open dim but one grows, and where compute takes over then."""

    large: str
    intensity: str
    crossover: str = ""


class Sample(msgspec.Struct):
    """The roofline at one value of the free dim, or at one value of each that was given several."""

    value: float
    lower_s: float
    upper_s: float
    bound_by: str
    attainable_flops_per_s: float
    intensity_flops_per_byte: float
    sizes: dict[str, int] = {}


class RooflineReport(Record):
    """Counts always; rates, times and crossovers only on a chip, and numbers only where every size is known."""

    ROWS: ClassVar[str] = "samples"
    CHARTS: ClassVar[tuple[str, ...]] = ("roofline",)

    expression: str
    chip: str | None
    compute_dtype: str
    unit: str
    memory: str
    sizes: dict[str, int]
    free: list[str]
    flops_formula: str
    bytes_formula: str
    flops: float | None
    bytes: float | None
    intensity_flops_per_byte: float | None
    peak_flops_per_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    critical_intensity_flops_per_byte: float | None = None
    resources: list[Resource] = []
    lower_s: float | None = None
    upper_s: float | None = None
    bound_by: str | None = None
    attainable_flops_per_s: float | None = None
    intensity_formula: str = ""
    limits: list[IntensityLimit] = []
    crossovers: list[CrossoverRow] = []
    samples: list[Sample] = []
    advice: str = ""
    chip_title: str = ""

    def headline(self) -> str:
        where = ""
        if self.chip:
            where = f" on {self.chip}"
        if self.lower_s is None:
            return f"{self.expression}{where}"
        return f"{self.expression}{where}: {render(self.lower_s, 's')} at best, bound by {spelled(self.bound_by or '')}"

    def rows(self) -> list[dict[str, Any]]:
        """The samples of an open dim; the answer itself where there are none."""
        if self.samples:
            return super().rows()
        return [{name: value for name, value in self.to_dict().items() if not isinstance(value, list | dict)}]


@dataclass(frozen=True)
class SizedEinsum:
    """An einsum, its sizes with symbols for those not given, and the names of the latter."""

    line: Einsum
    sizes: dict[str, Number]
    free: list[str]


def prepare(expression: str, sizes: dict[str, int]) -> SizedEinsum:
    """An einsum that was written, with the sizes of its dims."""
    line = parse_einsum(expression)
    return SizedEinsum(line, *open_sizes(Operation(line), sizes))


def open_sizes(operation: Operation | GivenCounts, sizes: dict[str, int]) -> tuple[dict[str, Number], list[str]]:
    """Every size, symbols for those not given, and the names of the latter."""
    for name in sizes:
        if name not in operation.indices:
            raise unknown("dim of this expression called", name, operation.indices)
    all_sizes: dict[str, Number] = {**operation.sizes, **sizes}
    free = [index for index in operation.indices if index not in all_sizes]
    return all_sizes | {name: symbol(name) for name in free}, free


def roofline_report(
    expression: str,
    chip: Chip | None,
    sizes: dict[str, list[int]] | None = None,
    level: str = "hbm",
    solve: bool = True,
    **counting: Any,
) -> RooflineReport:
    """The roofline of an operation such as `bf16[B,8192] @ bf16[8192,28672]` on one chip. Dims with several sizes go
    row by row.

    `level` is the memory (or `pcie`, `dcn`) the operands come from; `counting` is what `Operation.cost` takes:
    `weights_only` for the bytes of the last operand alone, the book's approximation for small batches, and
    `per_element`, the FLOPs of an elementwise function where they are not the usual ones. Crossovers take most of the
    time; `solve=False` leaves them out.
    """
    operation = _unsharded(expression)
    rows = _rows(sizes or {})
    open_sizes(operation, dict.fromkeys(rows, 1))  # refuses dims that the operation does not have
    all_sizes, free = open_sizes(
        operation, {name: values[0] for name, values in (sizes or {}).items() if name not in rows}
    )

    def count(changed: dict[str, Number]) -> Cost:
        return operation.cost(all_sizes | changed, level, **counting)

    report = _counted(operation, count, all_sizes, free, level)
    critical = None
    if chip:
        critical = chip.intensity(report.compute_dtype, report.unit, level)
    if not rows:
        report.limits = _limits(count({}), free, level, critical)
    if chip is None:
        report.advice = "Add --on CHIP for times and what bounds them."
        return report

    def at(changed: dict[str, Number]) -> Roofline:
        return roofline(count(changed), rates_of(chip))

    _timed(report, at({}), chip)
    if solve and len(free) < 2:
        report.crossovers = _crossovers(at, free or operation.varied)
    if not rows and len(free) == 1:
        # one open dim is drawn from 1 to 4^9, in steps of 4
        rows = {free[0]: [4.0**power for power in range(10)]}
    if len(rows) == len(free) > 0:
        report.samples = _samples(at, rows, level)
    if solve:
        report.advice = advice(report)
    return report


def roofline_curve(
    expression: str,
    chip: Chip,
    sizes: dict[str, int],
    dim: str,
    values: Sequence[float],
    level: str = "hbm",
    **counting: Any,
) -> list[Sample]:
    """The roofline over one dim, at these values of it; every other dim must have a size.

    >>> from dragonscale.physics.hardware import load_chip
    >>> [
    ...     row.bound_by
    ...     for row in roofline_curve("bf16[B,8192] @ bf16[8192,8192]", load_chip("v5e"), {}, "B", [64.0, 1024.0])
    ... ]
    ['hbm', 'compute']
    """
    operation = _unsharded(expression)
    all_sizes, free = open_sizes(operation, {name: size for name, size in sizes.items() if name != dim})
    if free != [dim]:
        raise InputError(f"A curve over {dim} needs the sizes of the other dims; give {', '.join(free)}.")

    def at(changed: dict[str, Number]) -> Roofline:
        return roofline(operation.cost(all_sizes | changed, level, **counting), rates_of(chip))

    return _samples(at, {dim: values}, level)


def _rows(sizes: dict[str, list[int]]) -> dict[str, list[float]]:
    """The dims that were given several sizes, each as often as the others."""
    several = {name: list(map(float, values)) for name, values in sizes.items() if len(values) > 1}
    if len(set(map(len, several.values()))) > 1:
        counts = ", ".join(f"{len(values)} of {name}" for name, values in several.items())
        raise InputError(f"--sizes gives {counts}; sizes go row by row, so give every such dim equally many.")
    return several


def _unsharded(expression: str) -> Operation | GivenCounts:
    """The operation that was written, which must be of one chip."""
    operation = parse_operation(expression)
    if operation.axes:
        axes = ", ".join(operation.axes)
        answers = "`dscale shard` answers for that, a roofline is of one chip"
        raise InputError(f"{expression!r} is sharded over {axes}; {answers}.")
    return operation


def _counted(
    operation: Operation | GivenCounts,
    count: Callable[..., Cost],
    sizes: dict[str, Number],
    free: list[str],
    level: str,
) -> RooflineReport:
    """What needs no chip: FLOPs and bytes, as formulas and as numbers. Amounts alone may lack either."""
    cost = count({})
    # once more with a letter for every dim, for the formulas
    letters = count({name: symbol(name) for name in operation.indices})
    # what only moves bytes is laid against the matrix unit
    unit, dtype = next(iter(cost.flops), ("matrix", "bf16"))
    moved = cost.bytes.get(level, 0)
    flops = bytes_moved = intensity = None
    if not free:
        flops, bytes_moved = float(cost.total_flops), float(moved)
        if moved:
            intensity = float(cost.total_flops / moved)
    formula = ""
    if letters.bytes.get(level):
        formula = _formula(letters.total_flops / letters.bytes[level])
    return RooflineReport(
        expression=str(operation),
        chip=None,
        compute_dtype=dtype,
        unit=unit,
        memory=level,
        sizes={name: int(size) for name, size in sizes.items() if name not in free},
        free=free,
        flops_formula=_formula(letters.total_flops),
        bytes_formula=_formula(letters.bytes.get(level, 0)),
        intensity_formula=formula,
        flops=flops,
        bytes=bytes_moved,
        intensity_flops_per_byte=intensity,
    )


def _formula(amount: Number) -> str:
    """A formula with its common factors in front and fractions for decimals."""
    import sympy

    return str(sympy.factor_terms(sympy.nsimplify(sympy.factor(sympy.expand(amount)), rational=True)))


def large_limits(cost: Cost, free: Sequence[str], level: str) -> dict[str, tuple[list[str], Any]]:
    """For each open dim, those that stay in the intensity beside it, and what the intensity comes to as they grow
    together; only what it comes to as all of them grow, under an empty name, where that has an end."""
    import sympy

    limits: dict[str, tuple[list[str], Any]] = {}
    grown: Any = sympy.Symbol("grown", positive=True)
    moved: Any = sympy.sympify(cost.bytes.get(level, 0))
    intensity: Any = sympy.factor(cost.total_flops / moved) if moved != 0 else moved
    inside = [name for name in free if symbol(name) in intensity.free_symbols]
    for name in ("", *inside):  # "": all of them grow
        others = [other for other in inside if other != name]
        scaled = intensity.subs({symbol(other): grown * symbol(other) for other in others}, simultaneous=True)
        limit = sympy.nsimplify(sympy.factor(sympy.limit(scaled, grown, sympy.oo)), rational=True)
        if not name and others and limit.is_finite:
            return {"": (others, limit)}
        if name and symbol(name) in limit.free_symbols:
            limits[name] = others, limit
    return limits


def _limits(cost: Cost, free: Sequence[str], level: str, critical: float | None) -> list[IntensityLimit]:
    """What the intensity comes to as dims grow; on a chip, one open dim has its crossovers instead."""
    if critical and len(free) < 2:
        return []
    rows: list[IntensityLimit] = []
    for name, (others, limit) in large_limits(cost, free, level).items():
        large = "always"
        if others:
            large = f"large {', '.join(others)}"
        rows.append(IntensityLimit(large, str(limit), _takes_over(name, limit, level, critical)))
    return rows


def _takes_over(name: str, limit: Any, level: str, critical: float | None) -> str:
    """From where on compute binds, in the one letter of a limit where it has one."""
    if critical is None:
        return ""
    if limit.is_number and limit > critical:
        return "compute binds"
    if limit.is_number:
        return f"{spelled(level)} binds whatever they are"
    if limit.free_symbols == {symbol(name)}:
        points = solve_equal(limit, critical, symbol(name))
        if points:
            return f"compute binds above {name} = {float(points[0]):,.4g}"
    return f"compute binds above {limit} = {critical:,.4g}"


def _timed(report: RooflineReport, result: Roofline, chip: Chip) -> None:
    """The chip's rates, and the times where every size is known."""
    level, whole = report.memory, not report.free
    report.chip, report.chip_title = chip.name, chip.title
    report.peak_flops_per_s = chip.peak(report.compute_dtype, report.unit)
    report.bandwidth_bytes_per_s = chip.bandwidth(level)
    report.critical_intensity_flops_per_byte = report.peak_flops_per_s / report.bandwidth_bytes_per_s
    texts = {report.unit: f"{report.flops_formula} / C", level: f"({report.bytes_formula}) / W"}
    report.resources = [
        Resource(NAMES.get(name, name), texts[name], float(seconds) if whole else None)
        for name, seconds in result.seconds.items()
    ]
    if whole:
        report.lower_s, report.upper_s = float(result.lower), float(result.upper)
        report.bound_by = NAMES.get(result.bound_by, result.bound_by)
        if report.flops:
            report.attainable_flops_per_s = float(result.flops_per_second)


def _crossovers(at: Callable[..., Roofline], names: Sequence[str]) -> list[CrossoverRow]:
    """In each of these dims, with the others as given. A dim need not change every time, only some of them."""
    rows: list[CrossoverRow] = []
    for name in names:
        variable = symbol(name)
        result = at({name: variable})
        if any(variable in getattr(seconds, "free_symbols", ()) for seconds in result.seconds.values()):
            for point in crossovers(result, variable):
                below, above = NAMES.get(point.below, point.below), NAMES.get(point.above, point.above)
                rows.append(CrossoverRow(name, float(point.value), below, above))
    return rows


def _samples(at: Callable[..., Roofline], over: Mapping[str, Sequence[float]], level: str) -> list[Sample]:
    """Open dims at these values, row by row, all in one call."""
    import numpy

    columns = {name: numpy.array(column, dtype=float) for name, column in over.items()}
    values = next(iter(columns.values()))
    result = at(columns)
    names = [NAMES.get(name, name) for name in result.seconds]
    times = result.lower, result.upper, result.binding(), result.flops_per_second, result.cost.intensity(level)
    rows = zip(*columns.values(), *(numpy.broadcast_to(column, values.shape).tolist() for column in times), strict=True)
    samples: list[Sample] = []
    for row in rows:
        sizes = dict(zip(columns, map(int, row), strict=False))
        low, high, binding, *rest = row[len(sizes) :]
        samples.append(Sample(float(row[0]), low, high, names[binding], *rest, sizes=sizes))
    return samples


def advice(report: RooflineReport) -> str:
    """What bounds the answer and what to change."""
    change = ""
    if not report.sizes and not report.free:  # amounts alone
        return _more(report)
    for first in report.crossovers[:1]:
        change = (
            f"{first.variable} = {first.value:,.4g} is where {spelled(first.above)} takes over from "
            f"{spelled(first.below)}"
        )
    if report.bound_by is not None:
        return f"Bound by {spelled(report.bound_by)}; {change or _unchanged(report)}."
    if change:
        return f"{change}."
    if len(report.free) > 1 and not report.samples:
        first = None
        if report.limits:
            first = report.limits[0]
        if first and first.large != "always":
            large = f"with {first.large} {first.crossover}"
        else:
            large = ""
        critical = f"compute binds above {report.critical_intensity_flops_per_byte:,.4g} FLOPs per byte"
        growth = large or (first and first.crossover) or critical
        return f"Give sizes (--sizes {report.free[0]}=…) for times; {growth}."
    bound = {row.bound_by for row in report.samples}
    if len(bound) > 1:
        rest = sum(row.bound_by == "compute" for row in report.samples)
        return f"Bound by compute in {rest} of the {len(report.samples)} rows."
    if len(report.free) > 1:
        where = "in every row"
    else:
        where = f"whatever {report.free[0]} is"
    return f"Always bound by {spelled(bound.pop())}, {where}{_fuse(report)}."


def _unchanged(report: RooflineReport) -> str:
    return f"no single dim changes that{_fuse(report)}"


def _fuse(report: RooflineReport) -> str:
    """What helps an elementwise function, of which every size costs bytes and FLOPs alike."""
    elementwise = report.unit == "vector" and report.memory == "hbm"
    if elementwise:
        return ": fused with what makes or reads its arrays, it moves fewer bytes"
    return ""


def _more(report: RooflineReport) -> str:
    """Of amounts alone, how much of the other resource would take as long."""
    peak, width = report.peak_flops_per_s or 0.0, report.bandwidth_bytes_per_s or 0.0
    flops, moved = report.flops or 0.0, report.bytes or 0.0
    if report.bound_by == "compute":
        limit = render(flops * width / peak, "bytes")
        return f"Bound by compute; {spelled(report.memory)} would bind from {limit} on."
    limit = render(moved * peak / width, "FLOP")
    return f"Bound by {spelled(report.memory)}; compute would bind from {limit} on."


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
