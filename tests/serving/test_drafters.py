"""Kinds of drafters: their usual acceptance, what they cost, and how many requests an engine runs beside them."""

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.steady.speculation import named_draft, speculate


def test_a_loop_takes_what_vllm_measured():
    """vllm-project/vllm#16035: Llama 3 8B with EAGLE, one request: 128.6 tokens/s without drafts, 175.5 with two (1.89
    tokens a step), 165.7 with four (2.08)."""
    deployment = deploy("llama3-8b", "h100:1", "tensor=1", "vllm")
    loops = speculate(deployment, named_draft("eagle", deployment.model), 1, 500, (2, 4))
    measured = {2: 1.89 / 175.49 * 128.64, 4: 2.08 / 165.65 * 128.64}
    for loop in loops:
        assert (loop.drafting + loop.verifying) / loop.plain == pytest.approx(measured[loop.drafts], rel=0.1)


def test_lookup_costs_no_device_time():
    deployment = deploy("llama3-8b", "h100:1", "tensor=1", "vllm")
    (lookup,) = speculate(deployment, named_draft("ngram", deployment.model), 1, 500, (3,))
    assert lookup.drafting == deployment.engine.host.draft_step_s


def test_drafts_do_not_pay_where_the_engine_runs_fewer_requests():
    """sgl-project/sglang#5160: NextN lowers the throughput of DeepSeek-R1 in bf16 on A100 at 128 requests."""
    report = ds.serve("deepseek-r1", on="a100:32", engine="sglang", dtype="bf16", batch="128", drafts=1)
    assert report.speculation.limit == 48
    assert report.speculation.limited_gain < 0.9
    assert report.verdict.startswith("Not worth it by default")


def test_drafts_need_no_acceptance_and_other_kinds_are_named():
    report = ds.serve("llama3-8b", on="h100:1", engine="vllm", batch="1", drafts=3, prompt="100", output="100")
    assert report.speculation.source
    assert {row.drafter for row in report.speculation.others} == {"an MLP speculator", "n-gram lookup"}
    lookup = ds.serve(
        "llama3-8b", on="h100:1", engine="vllm", batch="1", drafts=3, draft="ngram", prompt="100", output="100"
    )
    assert lookup.speculation.server_gain < report.speculation.server_gain


def test_a_model_without_modules_has_no_mtp():
    with pytest.raises(InputError, match="has no MTP modules"):
        ds.serve("llama3-8b", on="h100:1", draft="mtp", batch="1")
