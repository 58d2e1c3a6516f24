"""`dscale validate WHAT FILE`: predictions scored against measured runs."""

from typing import Annotated

from cyclopts import App, Parameter

from dragonscale.cli.flags import Json
from dragonscale.cli.show import emit_json, note, say, table


def build() -> App:
    """The validate command and what it can score."""
    app = App(name="validate", help="Score predictions against measured runs in a file.")
    app.command(collectives, name="collectives")
    app.command(kernels, name="kernels")
    app.command(training, name="training")
    app.command(inference, name="inference")
    app.command(serving, name="serving")
    return app


Out = Annotated[str | None, Parameter(name="--out", help="Write id,measured,predicted,ape for every scored row.")]


def collectives(
    file: Annotated[str, Parameter(help="A CSV with the columns of measured collectives.")],
    /,
    *,
    out: Out = None,
    json: Json = False,
) -> int:
    """Score expected times of collectives against measured ones."""
    from dragonscale.evidence.collectives import validate

    return _show(validate(file), out, json)


def kernels(
    file: Annotated[
        str, Parameter(help="A CSV of measured matmuls, attentions or expert layers; told by its columns.")
    ],
    /,
    *,
    out: Out = None,
    json: Json = False,
) -> int:
    """Score expected times of single kernels against measured ones."""
    from dragonscale.evidence.kernels import validate

    return _show(validate(file), out, json)


def training(
    file: Annotated[str, Parameter(help="A CSV with the columns of published training runs.")],
    /,
    *,
    out: Out = None,
    json: Json = False,
) -> int:
    """Score expected step times and memory of training runs against measured ones."""
    from dragonscale.evidence.training import validate

    return _show(validate(file), out, json)


def inference(
    file: Annotated[str, Parameter(help="A CSV with the columns of published inference runs.")],
    /,
    *,
    out: Out = None,
    json: Json = False,
) -> int:
    """Score expected latencies and throughputs of inference runs against measured ones."""
    from dragonscale.evidence.inference import validate

    return _show(validate(file), out, json)


def serving(
    file: Annotated[str, Parameter(help="A CSV of closed-loop serving runs with TTFT and TPOT.")],
    /,
    *,
    out: Out = None,
    json: Json = False,
) -> int:
    """Score simulated times to the first token and between tokens against measured ones."""
    from dragonscale.evidence.serving import validate

    return _show(validate(file), out, json)


def _show(report, out: str | None, json: bool) -> int:
    from dragonscale.evidence.score import write_scores

    if out:
        write_scores(report, out)
        note(f"Wrote {out}.")
    emit_json(report.as_json()) if json else say(_text(report.as_json(), report.group_name))
    return 0


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


APART = {
    "latencies": "latencies (static, prefill, decode)",
    "rates": "throughputs (max, serving)",
    "tpot": "TPOT",
    "ttft": "TTFT",
}


def _apart(found: dict) -> list[str]:
    """Kinds of numbers that are scored apart: latencies and rates, TPOT and TTFT, each for dense and mixed models."""
    rows = []
    for name, shown in APART.items():
        part = found.get(name)
        if not part:
            continue
        for kind in ("", "dense", "moe"):
            own = part.get(kind) if kind else part
            if own and own.get("rows"):
                label = f"{shown}, {'mixtures' if kind == 'moe' else kind}" if kind else shown
                rows.append([label, own["rows"], _percent(own["median_ape"]), _percent(own["mape"])])
    return [table(["apart", "rows", "median error", "mean"], rows, right=[1, 2, 3]), ""] if rows else []


def _text(found: dict, group: str) -> str:
    lines = [f"{found['scored']} of {found['rows']} rows scored"]
    lines += [f"  left out: {count} ({reason})" for reason, count in found["skipped"].items()]
    header, rows = [group, "rows", "median error", "mean"], []
    for name, part in found[f"by_{group}"].items():
        rows.append([name, part.get("rows"), _percent(part.get("median_ape")), _percent(part.get("mape"))])
        if group == "network":
            rows[-1] += [part["large"].get("rows"), _percent(part["large"].get("median_ape"))]
    header += ["above 1 MiB", "median error"] if group == "network" else []
    lines += ["", table(header, rows, right=range(1, len(header))), "", *_apart(found)]
    lines += ["worst rows"]
    worst = [
        [row["id"], f"{row['measured']:.4g}", f"{row['predicted']:.4g}", _percent(row["ape"])] for row in found["worst"]
    ]
    lines += [table(["id", "measured", "predicted", "error"], worst, right=[1, 2, 3], indent=2), ""]
    bias = found["bias"]
    slow, fast = ("high", "low") if "rates" in found else ("slow", "fast")
    lean = slow if bias and bias > 0 else fast
    lines.append(
        f"Median error {_percent(found['median_ape'])}, mean {_percent(found['mape'])}, predictions {_percent(abs(bias or 0))} too {lean} on average."
    )
    return "\n".join(lines)
