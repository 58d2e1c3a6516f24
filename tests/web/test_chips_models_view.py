"""Panels of chips and models, the what-if sliders and the field for a model: numbers as the commands print them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragonscale.models import count_parameters, load_model, model_names
from dragonscale.models.huggingface import load_config
from dragonscale.models.over_length import overtaken_at
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.hardware.changes import changed_chip
from dragonscale.web.page_request import KEPT
from tests.web.test_operations_view import asked, figures, printed

CONFIGS = Path(__file__).parents[1] / "models" / "configs"


@pytest.fixture(autouse=True, scope="module")
def _forgotten() -> Iterator[None]:
    yield
    KEPT.clear()


def test_the_table_of_chips_is_the_command_s(capsys: pytest.CaptureFixture[str]) -> None:
    table = asked("chips", {}, ["table"])["table"]
    record = printed(capsys, "chips")
    assert [row["name"] for row in table["rows"]] == [chip["name"] for chip in record]
    for row, chip in zip(table["rows"], record, strict=True):
        cells = {name: cell["value"] for name, cell in row["cells"].items()}
        assert cells["bf16"] == chip["bf16_flops_per_s"]
        assert cells["price"] == chip["price_usd_per_h"]
        assert cells["intensity"] == chip["critical_intensity_flops_per_byte"]
        assert all(
            cell["why"].endswith(f"@{row['name']}") for cell in row["cells"].values() if cell["value"] is not None
        )


def test_a_chip_s_page_has_every_fact_with_its_source() -> None:
    found = asked("chips", {"name": "h100"}, ["chip", "roof"])
    facts = {fact["path"]: fact for group in found["chip"]["groups"] for fact in group["facts"]}
    chip = load_chip("h100")
    assert set(facts) == set(chip.facts)
    named = {one["name"] for one in found["chip"]["sources"]}
    assert all(fact["source"] in named for fact in facts.values())
    assert [one["source"] for one in facts["price"]["also"]] == [one.source for one in chip.facts["price"].also]
    assert max(roof["peak"] for roof in found["roof"]["roofs"]) == chip.peak("fp8")


def test_what_if_moves_the_roof_and_keeps_the_old_one() -> None:
    found = asked("chips", {"name": "v5e:4x4"}, ["chip", "roof"], set="hbm=2x")
    made = changed_chip(load_chip("v5e"), "hbm=2x")
    assert {roof["bandwidth"] for roof in found["roof"]["roofs"][:-1]} == {made.hbm.bandwidth}
    assert found["roof"]["roofs"][-1]["bandwidth"] == load_chip("v5e").hbm.bandwidth
    assert figures(found["chip"])["HBM bandwidth"] == made.hbm.bandwidth


@pytest.mark.parametrize(("chip", "has", "lacks"), [("h100", "nvlink", "ici"), ("v5p", "ici", "nvlink")])
def test_every_stop_of_a_slider_is_a_change_that_the_chip_takes(chip: str, has: str, lacks: str) -> None:
    knobs = asked("chips", {"name": chip}, ["knobs"], set="hbm=1.5x,pcie=2x")["knobs"]
    names = {knob["name"]: knob for knob in knobs["knobs"]}
    assert has in names
    assert lacks not in names
    assert {"hbm", "hbm_capacity", "flops", "price"} <= set(names)
    assert names["hbm"]["factor"] == 1.5
    assert knobs["kept"] == ["pcie=2x"]
    for name, knob in names.items():
        for stop in knob["stops"]:
            if stop["value"]:
                changed_chip(load_chip(chip), f"{name}={stop['value']}")


def test_chips_stand_side_by_side_with_differences_marked() -> None:
    found = asked("chips", {}, ["beside"], beside="h100,h200,b200+hbm=2x")["beside"]
    rows = {row["title"]: row["cells"] for row in found["rows"]}
    assert [cell["differs"] for cell in rows["bf16"]] == [False, False, True]
    assert [cell["differs"] for cell in rows["HBM"]] == [False, True, True]
    assert "at most 4" in asked("chips", {}, ["beside"], beside="h100,h200,b200,v5e,v5p")["error"]
    assert "looks like a file" in asked("chips", {}, ["beside"], beside="h100,/etc/passwd")["error"]


@pytest.mark.parametrize("name", ["v5p:4x8x8", "h100:256"])
def test_a_slice_is_the_command_s(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked("chips", {}, ["slice"], slice=name)["slice"]
    record = printed(capsys, "chips", name)
    assert figures(found)["bf16 in all"] == record["bf16_flops_per_s"]
    assert [(row["axis"], row["size"], row["wraps"]) for row in found["axes"]] == [
        (row["axis"], row["size"], row["wraps"]) for row in record["axes"]
    ]
    assert [(row["tier"], row["children"]) for row in found["tiers"]] == [
        (row["tier"], row["children"]) for row in record["tiers"]
    ]


def test_a_model_s_page_is_the_command_s(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked("models", {"model": "deepseek-v3", "seq": "4096"}, ["model", "lengths", "program"])
    record = printed(capsys, "models", "deepseek-v3", "--seq", "4096")
    shown = figures(found["model"])
    assert shown["parameters"] == record["parameters"]
    assert shown["used per token"] == record["active_parameters"]
    assert shown["KV cache of a sequence"] == record["cache_bytes_per_sequence"]
    assert sum(part["shown"]["value"] for part in found["model"]["parameters"]["parts"]) == record["parameters"]
    assert sum(part["shown"]["value"] for part in found["model"]["flops"]["parts"]) == pytest.approx(
        record["forward_flops_per_token"]
    )
    assert found["program"]["program"] == record["program"]
    assert found["lengths"]["cache"]["marks"][0]["y"] == record["cache_bytes_per_sequence"]


def test_attention_overtakes_the_matmuls_where_their_curves_cross() -> None:
    found = asked("models", {"model": "llama3-70b"}, ["lengths"])["lengths"]
    curves = {series["name"]: series["points"] for series in found["flops"]["series"]}
    above = [
        x
        for (x, scores), (_, rest) in zip(curves["attention (QK, PV)"], curves["all matmuls"], strict=True)
        if scores > rest
    ]
    below = [
        x
        for (x, scores), (_, rest) in zip(curves["attention (QK, PV)"], curves["all matmuls"], strict=True)
        if scores <= rest
    ]
    assert max(below) <= found["meets"]["value"] <= min(above)
    model = load_model("llama3-70b")
    causal, full = overtaken_at(model), overtaken_at(model, causal=False)
    assert causal is not None
    assert full is not None
    assert causal == pytest.approx(2 * full, rel=0.01)


def test_the_table_of_models_and_the_form_s_list_agree() -> None:
    rows = {row["name"]: row for row in asked("models", {}, ["table"])["table"]["rows"]}
    presets = {one["name"]: one for one in asked("catalogue", {}, ["catalogue"])["catalogue"]["presets"]}
    assert set(rows) == set(presets) == set(model_names())
    assert all(presets[name]["parameters"] == row["cells"]["parameters"]["text"] for name, row in rows.items())


@pytest.mark.parametrize("name", ["Qwen--Qwen3-32B-FP8.json", "MiniMaxAI--MiniMax-M2.5.json"])
def test_a_dropped_config_stays_the_same_model_when_made_small(name: str) -> None:
    text = (CONFIGS / name).read_text()
    made = asked("models", {}, ["config"], dropped={"config.json": text})["config"]
    assert len(made["text"]) < len(text)
    assert made["in_address"]
    small, whole = load_config(json.loads(made["text"])), load_config(json.loads(text))
    assert count_parameters(small) == count_parameters(whole)
    assert small.weight_dtypes == whole.weight_dtypes
    line = asked("models", {"model": made["name"]}, ["line"], dropped={made["name"]: made["text"]})["line"]
    assert line["parameters"]["value"] == count_parameters(whole).total


@pytest.mark.parametrize(
    ("dropped", "said"),
    [
        ("not json", "is not JSON"),
        ("[1]", "not an object"),
        ('{"model_type": "llama"}', "lacks"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "no model_type"),
    ],
)
def test_a_file_that_is_no_config_gets_one_sentence(dropped: str, said: str) -> None:
    error = asked("models", {}, ["config"], dropped={"config.json": dropped})["error"]
    assert said in error
    assert "\n" not in error


@pytest.mark.parametrize(
    ("view", "request_", "said"),
    [
        ("chips", {"fields": {"name": "h1000"}, "panels": ["chip"]}, "There is no chip 'h1000'"),
        ("chips", {"fields": {"name": "h100"}, "panels": ["knobs"], "set": "warp=2x"}, "'warp'"),
        ("chips", {"fields": {"name": "h100"}, "panels": ["knobs"], "set": "profile=../x.toml"}, "looks like a file"),
        ("chips", {"fields": {"name": "../x"}, "panels": ["chip"]}, "looks like a file"),
        ("chips", {"fields": {}, "panels": ["slice"], "slice": "v5e:3x5x7"}, "v5e"),
        ("models", {"fields": {"model": "lama3-8b"}, "panels": ["line"]}, "did you mean 'llama3-8b'"),
        ("models", {"fields": {"model": "llama3-8b", "seq": "-1"}, "panels": ["model"]}, "--seq"),
        ("models", {"fields": {}, "panels": ["config"]}, "config.json"),
    ],
)
def test_odd_questions_get_one_sentence(view: str, request_: dict[str, Any], said: str) -> None:
    error = asked(view, request_.pop("fields"), request_.pop("panels"), **request_)["error"]
    assert said in error
    assert "\n" not in error
    assert "fault" not in error


def test_every_size_that_is_offered_for_a_chip_can_be_had() -> None:
    """The form keeps a number of chips by these sizes, without asking the planner."""
    for chip in asked("catalogue", {}, ["catalogue"])["catalogue"]["chips"]:
        assert chip["train"], chip["name"]
        for many, topology in [*chip["train"], *chip["serve"], *([also, str(also)] for also in chip["also"])]:
            assert parse_slice(f"{chip['name']}:{topology}").chips == many
        if chip["unit"]:
            assert parse_slice(f"{chip['name']}:{3 * chip['unit']}").chips == 3 * chip["unit"]
