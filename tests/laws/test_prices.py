"""What things cost follows from what they take: dollars are chip-hours times a price, and a price changes no time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dragonscale as ds

TRAINED = {"llama3-8b": "fsdp8", "qwen3-30b-a3b": "fsdp8 ep8"}
SERVED = {"llama3-8b": "tp2", "gpt-oss-20b": "tp2"}


@settings(max_examples=3, deadline=None)
@given(model=st.sampled_from(sorted(TRAINED)), dollars=st.floats(0.1, 50), seq=st.sampled_from((1024, 4096)))
def test_a_run_costs_its_chip_hours_at_the_price(model: str, dollars: float, seq: int) -> None:
    question = {"on": "h100:8", "batch": "64seq", "seq": seq, "tokens": "1B", "plan": TRAINED[model], "alone": True}
    usual, priced = (ds.train(model, **question, **more).plans[0] for more in ({}, {"price": f"{dollars:g}/h"}))
    assert priced.step_s == usual.step_s
    assert priced.cost_usd == pytest.approx(priced.chip_hours * float(f"{dollars:g}"), rel=1e-9)
    assert usual.cost_usd / priced.cost_usd == pytest.approx(
        ds.chips("h100").price_usd_per_h / float(f"{dollars:g}"), rel=1e-6
    )


@settings(max_examples=3, deadline=None)
@given(model=st.sampled_from(sorted(SERVED)), factor=st.floats(1.1, 20), batch=st.sampled_from((1, 16)))
def test_tokens_cost_in_proportion_to_the_price(model: str, factor: float, batch: int) -> None:
    question = {"on": "h100:2", "plan": SERVED[model], "batch": batch, "engine": "vllm"}
    one, more = (ds.serve(model, **question, price=f"{dollars:.6g}/h").configs[0] for dollars in (1.0, factor))
    assert more.tpot_s == one.tpot_s
    ratio = float(f"{factor:.6g}")
    assert more.cost_usd_per_mtok == pytest.approx(ratio * one.cost_usd_per_mtok, rel=1e-6)
    per_s = one.output_tokens_per_s_per_chip
    assert one.cost_usd_per_mtok == pytest.approx(1e6 / 3600 / per_s, rel=1e-6)
