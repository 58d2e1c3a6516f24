"""Predicted against measured, by source: the pictures of the validation pages, and the table of docs/validation.md.

    python -m tools.draw_validation            # all of it: about three minutes on one core, most of it simulated
    serving python -m tools.draw_validation training   # only the pictures whose names begin so; the table keeps its
    other rows

The rows are those that the pages' numbers come from (docs/data/measured; kernels: rows kept out of every fit), the
predictions those of `dscale validate`. `make validation` runs it.
"""

import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dragonscale.blocks.charts import Chart, predicted_against_measured
from dragonscale.blocks.charts.chart import encoded
from dragonscale.evidence import collectives, finetune, inference, kernels, memory, serving, training
from dragonscale.evidence.score import Scored

ROOT = Path(__file__).parents[1]
MEASURED, KERNELS = ROOT / "docs" / "data" / "measured", ROOT / "tests" / "kernels"
PAGE, PICTURES = ROOT / "docs" / "validation.md", ROOT / "docs" / "pictures" / "validation"
BEGIN, END = "<!-- errors -->\n", "<!-- /errors -->"


@dataclass(frozen=True)
class Kind:
    """One picture: what was measured, in what, where the page is."""

    name: str
    title: str
    dimension: str
    page: str
    rows: Callable[[], Sequence[Scored]]
    what: str
    colours: str = "source"
    sources: int = 0
    """Who measured, where the colours say something else."""


def _training() -> Sequence[Scored]:
    return training.validate(MEASURED / "training.csv.gz").scored


def _memory() -> Sequence[Scored]:
    return memory.validate(MEASURED / "memory.csv.gz").scored


def _finetune() -> Sequence[Scored]:
    return finetune.validate(MEASURED / "finetune.csv.gz").scored


def _collectives() -> Sequence[Scored]:
    return collectives.validate(MEASURED / "collectives.csv.gz").scored


RATES = ("max_throughput", "mlperf", "serving", "decode_throughput", "prefill_throughput")
_scored: dict[str, Sequence[Scored]] = {}


def _inference(rates: bool) -> Sequence[Scored]:
    if "inference" not in _scored:
        _scored["inference"] = inference.validate(MEASURED / "inference.csv.gz").scored
    return [row for row in _scored["inference"] if row.group.startswith(RATES) == rates]


def _serving(first: bool) -> Sequence[Scored]:
    """Times per output token, or to the first, of runs whose launch is stated; by engine and who ran it."""
    if "serving" not in _scored:
        judged = serving.predict_all(*serving.served_runs(MEASURED / "serving.csv.gz"))
        judged = [(run, found) for run, found in judged if not run.recipe.inferred]
        names = [(run, f"{run.row.source}, {run.row.engine}") for run, _ in judged]
        _scored["serving"] = [
            Scored(run.row.id, name, run.row.tpot_s, each)
            for (run, name), (_, (_, each)) in zip(names, judged, strict=True)
        ]
        _scored["first"] = [
            Scored(run.row.id, name, run.row.ttft_s, to_first)
            for (run, name), (_, (to_first, _)) in zip(names, judged, strict=True)
            if not run.recipe.cold
        ]
    return _scored["first" if first else "serving"]


def _kernels() -> Sequence[Scored]:
    names = ("gemm", "attn_context", "attn_generation", "moe_gemm")
    found = [row for name in names for row in kernels.validate(KERNELS / f"sample_{name}.csv").scored]
    return [
        Scored(row.id, f"{row.group.split()[0]}, {row.group.split()[-1]}", row.measured, row.predicted) for row in found
    ]


KINDS = (
    Kind("training", "Training steps", "s", "validation-training.md", _training, "published training steps"),
    Kind("finetune", "Fine-tuning steps", "s", "validation-training.md", _finetune, "published steps of fine-tuning"),
    Kind("memory", "Training memory", "bytes", "validation-training.md", _memory, "measured peaks of training memory"),
    Kind(
        "inference-latency",
        "Inference latencies",
        "s",
        "validation-inference.md",
        lambda: _inference(False),
        "static batches, prefills, decode steps",
    ),
    Kind(
        "inference-rate",
        "Inference throughput (tokens/s)",
        "number",
        "validation-inference.md",
        lambda: _inference(True),
        "throughputs of servers",
    ),
    Kind(
        "serving-tpot",
        "Time per output token",
        "s",
        "validation-serving.md",
        lambda: _serving(False),
        "TPOT under load, the load generator simulated",
        "source and engine",
    ),
    Kind(
        "serving-ttft",
        "Time to first token",
        "s",
        "validation-serving.md",
        lambda: _serving(True),
        "TTFT of the same runs",
        "source and engine",
    ),
    Kind(
        "collectives", "Collectives", "s", "validation-collectives.md", _collectives, "NCCL, DeepEP and TPU collectives"
    ),
    Kind(
        "kernels",
        "Kernels kept out of every fit",
        "s",
        "validation-kernels.md",
        _kernels,
        "single kernels that no constant was fitted on",
        "kernel and chip",
        1,
    ),
)


def short(source: str) -> str:
    """Who published a row: its repository, or the first words of its name.

    >>> short("NVIDIA/TensorRT-LLM docs/perf.md (v0.9)"), short("Pope et al. 2022 \\"Efficiently Scaling\\"")
    ('TensorRT-LLM', 'Pope et al. 2022')
    """
    found = re.match(r"[\w.-]+/([\w.-]+)", source)
    return found[1] if found else re.split(r"[\"(\[]| Table| via| docs| benchmark| release", source)[0].strip()[:28]


def picture(kind: Kind, rows: Sequence[Scored]) -> Chart:
    points = [(row.measured, row.predicted, short(row.source), row.id) for row in rows]
    median = statistics.median(row.ape for row in rows)
    subtitle = f"{len(rows):,} rows, median error {median:.1%}; colours by {kind.colours}"
    return predicted_against_measured(points, kind.dimension, f"{kind.title}: predicted against measured", subtitle)


def all_in_one(found: dict[str, Sequence[Scored]]) -> Chart:
    """Every duration of every kind: microseconds of kernels to minutes of training steps."""
    kinds = [kind for kind in KINDS if kind.dimension == "s" and kind.name in found]
    points = [(row.measured, row.predicted, kind.title, row.id) for kind in kinds for row in found[kind.name]]
    subtitle = f"{len(points):,} measured times, from microseconds to minutes; colours by what was timed"
    return predicted_against_measured(points, "s", "Predicted against measured", subtitle)


_DOT = re.compile(
    r'<path[^>]*?transform="translate\(([\d.-]+),([\d.-]+)\)"[^>]*?d="M([\d.]+),0A[^"]*"[^>]*?fill="([^"]+)"[^>]*?opacity="([\d.]+)"[^>]*?/>'
)


def thinned(svg: str) -> str:
    """The same picture with the dots of one colour and size as one path: a tenth of the bytes.

    >>> dot = '<path transform="translate(1,2)" d="M3,0A3,3" fill="red" opacity="0.8"/>'
    >>> thinned(dot + dot)
    '<path d="M1 2h0M1 2h0" stroke="red" stroke-width="6" stroke-linecap="round" opacity="0.8" fill="none"/>'
    """
    run = re.compile(f"(?:{_DOT.pattern})+")

    def joined(match: re.Match[str]) -> str:
        groups: dict[tuple[str, str, str], list[str]] = {}
        for x, y, radius, fill, opacity in _DOT.findall(match[0]):
            groups.setdefault((radius, fill, opacity), []).append(f"M{float(x):.4g} {float(y):.4g}h0")
        return "".join(
            f'<path d="{"".join(dots)}" stroke="{fill}" stroke-width="{2 * float(radius):.3g}" '
            f'stroke-linecap="round" opacity="{opacity}" fill="none"/>'
            for (radius, fill, opacity), dots in groups.items()
        )

    return run.sub(joined, svg)


def save(chart: Chart, name: str) -> None:
    path = PICTURES / f"{name}.svg"
    path.write_text(thinned(encoded(chart.to_dict(), ".svg").decode()))
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e3:.0f} kB")


def row_of(kind: Kind, rows: Sequence[Scored]) -> str:
    """A line of the table."""
    errors = [row.ape for row in rows]
    within = [sum(error <= band for error in errors) / len(errors) for band in (0.1, 0.2)]
    sources = kind.sources or len({short(row.source).split(",")[0] for row in rows})
    return (
        f"| [{kind.title}]({kind.page}) | {kind.what} | {len(rows):,} | {sources} | {statistics.median(errors):.1%} "
        f"| {statistics.fmean(errors):.1%} | {within[0]:.0%} | {within[1]:.0%} |"
    )


def with_rows(page: str, fresh: dict[str, str]) -> str:
    """The page with these lines of its table replaced, those of other kinds kept."""
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    old = {line.split("]")[0].removeprefix("| ["): line for line in page[start:end].splitlines() if "](" in line}
    head = [
        "| | what | rows | sources | median error | mean | within 10% | within 20% |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines = [fresh.get(kind.title) or old.get(kind.title, "") for kind in KINDS]
    return page[:start] + "\n".join([*head, *filter(None, lines)]) + "\n" + page[end:]


def main(begins: str = "") -> None:
    found = {kind.name: kind.rows() for kind in KINDS if kind.name.startswith(begins)}
    fresh = {}
    for kind in KINDS:
        if kind.name in found:
            save(picture(kind, found[kind.name]), kind.name)
            fresh[kind.title] = row_of(kind, found[kind.name])
    if len(found) == len(KINDS):
        save(all_in_one(found), "all")
    page = with_rows(PAGE.read_text(encoding="utf-8"), fresh)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2])
