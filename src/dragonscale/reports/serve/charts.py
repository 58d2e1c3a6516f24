"""The chart of `dscale serve`: what a user gets against what a chip yields, as Vega-Lite."""

from typing import Any

import msgspec

from dragonscale.reports.serve.records import ServeReport

_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def frontier_chart(report: ServeReport) -> dict[str, Any]:
    """Tokens per second of a user against those of a chip: a line for each chip, the best configurations by their rank."""
    several = len(report.frontier_by_chip) > 1
    points = [msgspec.to_builtins(one) | {"chip": chip} for chip, own in report.frontier_by_chip.items() for one in own]
    best = [
        {
            "tokens_per_s_per_user": one.tokens_per_s_per_user,
            "output_tokens_per_s_per_chip": one.output_tokens_per_s_per_chip,
            "rank": rank,
        }
        for rank, one in enumerate(report.configs, 1)
    ]
    work = report.workload
    line: dict[str, Any] = {"color": _colour("chip")} if several else {}
    return {
        "$schema": _SCHEMA,
        "title": f"{report.model}: prompts of {work.prompt:,}, outputs of {work.output:,} tokens",
        "width": 560,
        "height": 360,
        "config": {"axis": {"gridColor": "#eeeeee"}},
        "encoding": {"x": _axis("tokens_per_s_per_user"), "y": _axis("output_tokens_per_s_per_chip")},
        "layer": [
            {"data": {"values": points}, "mark": {"type": "line", "strokeWidth": 1}, "encoding": line},
            {
                "data": {"values": points},
                "mark": {"type": "point", "filled": True, "size": 50},
                "encoding": {
                    "color": _colour("chip" if several else "plan"),
                    "tooltip": [{"field": name} for name in points[0]],
                },
            },
            {
                "data": {"values": best},
                "mark": {"type": "text", "fontSize": 12, "fontWeight": "bold", "dy": -9},
                "encoding": {"text": {"field": "rank"}},
            },
        ],
    }


def _axis(field: str) -> dict[str, Any]:
    titles = {
        "tokens_per_s_per_user": "tokens/s of one user",
        "output_tokens_per_s_per_chip": "output tokens/s per chip",
    }
    return {
        "field": field,
        "type": "quantitative",
        "title": titles[field],
        "scale": {"type": "log"},
        "axis": {"format": ",~g"},
    }


def _colour(field: str) -> dict[str, Any]:
    return {"field": field, "type": "nominal", "scale": {"scheme": "tableau20"}, "legend": {"labelLimit": 320}}
