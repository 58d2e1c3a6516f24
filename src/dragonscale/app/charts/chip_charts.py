"""Charts of `dscale chips`: the roofs of one chip's formats or of several chips, and bars of what they have."""

from collections.abc import Sequence

from dragonscale.app.charts.roles import chosen_kind, nothing_to_draw
from dragonscale.app.chips_report import ChipReport, ChipsReport
from dragonscale.sheets.charts import Bar, Chart, Roof, bars, roofline_chart
from dragonscale.sheets.charts.amounts import amount

KINDS = ("roofs", "flops", "hbm", "bandwidth")
MOST = 8
"""Roofs that one picture can tell apart; of more the newest are drawn."""
ALIKE = 1.13
"""Roofs within this factor are drawn as one."""


def draw(kind: str, asked: object, report: ChipReport | ChipsReport) -> Chart:  # noqa: ARG001
    """One chip or all of them."""
    wanted = chosen_kind(kind, KINDS)
    chips = [report] if isinstance(report, ChipReport) else report.chips
    if not chips:
        raise nothing_to_draw("no chip is named")
    if wanted == "roofs":
        return roofs_chart(chips)
    fields = {
        "flops": ("bf16 peak", "bf16_flops_per_s", "FLOP/s"),
        "hbm": ("HBM", "hbm_bytes", "bytes"),
        "bandwidth": ("HBM bandwidth", "hbm_bytes_per_s", "bytes/s"),
    }
    title, field, dimension = fields[wanted]
    role = "compute" if wanted == "flops" else "hbm"
    rows = [Bar(one.title, getattr(one, field), role) for one in chips]
    return bars(
        rows, f"{title} of {len(chips)} chips" if len(chips) > 1 else f"{title} of {chips[0].title}", "", dimension
    )


def roofs_chart(chips: Sequence[ChipReport]) -> Chart:
    """bf16 over HBM of several chips, or every format of one."""
    if len(chips) == 1:
        [one] = chips
        peaks = {fact.path: fact.value for fact in one.facts if fact.unit == "FLOP/s" and isinstance(fact.value, float)}
        found: dict[float, list[str]] = {}
        for path, value in peaks.items():
            found.setdefault(float(value), []).append(path.removeprefix("matrix.").replace(".", " "))
        roofs = [Roof(", ".join(names), peak, one.hbm_bytes_per_s) for peak, names in found.items()]
        roofs = sorted(roofs, key=lambda roof: -roof.peak)[:MOST]
        return roofline_chart(
            roofs,
            [],
            f"{one.title}: roofs by format",
            f"over HBM at {amount(one.hbm_bytes_per_s, 'bytes/s')}, datasheet rates",
        )
    groups: list[list[ChipReport]] = []
    for one in sorted(chips, key=lambda one: (-one.bf16_flops_per_s, -one.hbm_bytes_per_s)):
        alike = next((group for group in groups if _alike(group[0], one)), None)
        groups.append([one]) if alike is None else alike.append(one)
    newest = sorted(groups, key=lambda group: max(one.released for one in group))[-MOST:]
    roofs = [
        Roof(", ".join(one.name for one in group), group[0].bf16_flops_per_s, group[0].hbm_bytes_per_s)
        for group in groups
        if group in newest
    ]
    told = "" if len(groups) <= MOST else f"; the {MOST} newest"
    return roofline_chart(
        roofs, [], "Roofs of chips, bf16 over HBM", f"datasheet rates of the first of each group{told}"
    )


def _alike(one: ChipReport, other: ChipReport) -> bool:
    """Whether two roofs could not be told apart in a picture."""
    ratios = one.bf16_flops_per_s / other.bf16_flops_per_s, one.hbm_bytes_per_s / other.hbm_bytes_per_s
    return all(1 / ALIKE < ratio < ALIKE for ratio in ratios)
