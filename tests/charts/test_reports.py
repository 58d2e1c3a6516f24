"""Charts of answers: each report draws what it says, from small questions."""

import re
from typing import Any

import pytest

from dragonscale.blocks.charts import Chart
from dragonscale.commands import chips_charts
from dragonscale.commands.charts import pictures
from dragonscale.commands.chips_report import chips_report
from dragonscale.commands.collective import CollectiveQuestion, ask
from dragonscale.commands.explain import ask_explain as explained
from dragonscale.commands.explain.physics import explain_roofline
from dragonscale.commands.models import draw_models, model_report
from dragonscale.commands.roofline_report import roofline_report
from dragonscale.commands.shard_report import shard_report
from dragonscale.commands.sweep.sweep_charts import sweep_chart
from dragonscale.commands.verify.verify_blocks import verify_chart
from dragonscale.errors import InputError
from dragonscale.evidence.score import Scored, report_of
from dragonscale.evidence.verify.records import AxisLine, Request, VerifyLine, VerifyReport
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.sharding.mesh import make_mesh

MATMUL = "bf16[B,8192] @ bf16[8192,28672]"


def said(chart: Chart) -> str:
    """All the text of a picture that is data, and its title."""
    words: list[str] = [chart.title]

    def walk(spec: Any) -> None:
        if isinstance(spec, dict):
            words.extend(
                str(value) for key, value in spec.items() if key in ("text", "subtitle") and isinstance(value, str)
            )
            for value in spec.values():
                walk(value)
        elif isinstance(spec, list):
            for value in spec:
                walk(value)

    walk(chart.spec)
    return " | ".join(words)


def test_a_roofline_names_its_samples_and_its_ridge() -> None:
    chip = load_chip("v5e")
    text = said(pictures.draw_roofline(roofline_report(MATMUL, chip), "roofline"))
    assert "B=64" in text
    assert "compute binds from 240 FLOPs per byte" in text
    one = said(pictures.draw_roofline(roofline_report(MATMUL, chip, {"B": [64]}), "roofline"))
    assert "TFLOP/s at 63.4 FLOPs/byte" in one
    with pytest.raises(InputError, match="nothing to draw"):
        pictures.draw_roofline(roofline_report(MATMUL, None), "roofline")


def test_a_collective_says_where_latency_ends() -> None:
    report = ask(CollectiveQuestion("all_gather", on="v5e:8x16", size="34MB", axis="X"), Listener())
    text = said(report.plot())
    assert "latency-bound below 360 kB" in text
    assert "34 MB: 661 µs" in text


def test_a_sharded_einsum_has_bars_and_a_mesh() -> None:
    mesh = make_mesh({"X": 4, "Y": 8}, load_chip("v5p"), None)
    report = shard_report("A[I_X, J] @ B[J_X, K_Y] -> C[I_X, K_Y]", mesh, "v5p", {"I": 8192, "J": 8192, "K": 28672})
    assert "all-gather over X" in said(pictures.draw_shard(report, "bars"))
    text = said(pictures.draw_shard(report, "mesh"))
    assert "X 4" in text
    assert "backward" in text
    unsized = shard_report("A[I_X, J] @ B[J_X, K_Y] -> C[I_X, K_Y]", mesh, "v5p", {})
    assert "what is sent needs --sizes" in said(pictures.draw_shard(unsized, "mesh"))


def test_chips_and_models() -> None:
    assert "v5p: 459 TFLOP/s" in said(chips_charts.draw_chips(chips_report(), "roofs"))
    assert re.search(r"and \d more: 2\.25 to 2\.52 PFLOP/s", said(chips_charts.draw_chips(chips_report(), "roofs")))
    assert "2.5 PFLOP/s" in said(chips_charts.draw_chips(chips_report(), "flops"))
    model = model_report(load_model("llama3-70b"), 8192)
    assert re.search(r"mlp \| attention", said(draw_models(model, "parameters")))


def test_an_explanation_has_its_times() -> None:
    text = said(explained.draw(explain_roofline(MATMUL, load_chip("v5e"), {"B": 64}), ""))
    assert "T_math" in text
    assert "249.657" in text
    roles = {
        name: explained._role(name) for name in ("decode, kernel by kernel, collectives hidden", "T of all_gather")
    }
    assert list(roles.values()) == ["overhead", "tensor"]


def test_a_verification_stands_beside_its_plan() -> None:
    asked = Request("train", "llama3-8b", "h100:8", "fsdp=8", 8, 4096)
    peak = VerifyLine("peak memory", "bytes", 4e10, 4.4e10, 0.15, "agrees")
    sent = AxisLine(("fsdp",), VerifyLine("fsdp", "bytes", 1e9, 1e9, 0.01, "agrees"), {})
    text = said(verify_chart(VerifyReport(asked, {}, 1.0, 0.0, True, "agrees", peak=peak, axes=(sent,)), ""))
    assert "110% (44GB, 1.100)" in text
    assert "sent over fsdp" in text


def test_scores_lie_about_the_band() -> None:
    rows = [Scored("a", "s", 10.0, 10.5, "h100"), Scored("b", "s", 20.0, 30.0, "v5p")]
    text = said(pictures.draw_scores(report_of(rows, [], "chip"), "training"))
    assert "50% within 10%, 50% within 20% of 2 rows" in text
    with pytest.raises(InputError, match="no row was scored"):
        pictures.draw_scores(report_of([], ["no step time"]), "training")


def test_a_sweep_is_lines_or_a_heat_map() -> None:
    rows = [
        {"slice": f"h100:{chips}", "chips": chips, "batch": batch, "mfu": 0.6 - chips / 1e4, "failed": ""}
        for chips in (64, 128, 256)
        for batch in ("1M", "2M")
    ]
    assert "59.4%" in said(sweep_chart(rows, "", "auto", "a sweep"))
    assert "batch 2M" in said(sweep_chart(rows, "mfu chips batch", "lines", "a sweep"))
    with pytest.raises(InputError, match="did you mean 'mfu'"):
        sweep_chart(rows, "mfuu", "auto", "a sweep")
    with pytest.raises(InputError, match="nothing varies"):
        sweep_chart(rows[:1], "", "auto", "a sweep")
