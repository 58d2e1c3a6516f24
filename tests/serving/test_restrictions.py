"""What releases of engines refuse beyond their general rules: nothing of it is recommended, and asking for it is
refused with what to take instead."""

from typing import Any

import pytest

from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.serve_question import read_question
from dragonscale.commands.simulate.simulate_question import read_question as read_simulation
from dragonscale.errors import Infeasible
from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.serving.advice.pools import search_pools
from dragonscale.serving.advice.refusals import chip_refusal
from dragonscale.serving.engine.checkpoint import own_formats
from dragonscale.serving.engine.engine import engines
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.engine.restrictions import ROLES, restriction_rows
from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.legal import model_caches, refusal


def pools_of(model: str, where: str, **flags: Any) -> list[PooledConfig]:
    return search_pools(read_question(ServeQuestion(model, where, disaggregate=True, **flags)))


def test_every_row_names_engines_and_says_where_it_is_from() -> None:
    for row in restriction_rows():
        assert {*row.engines} <= {*engines()}
        assert {*row.roles} <= {*ROLES}
        assert row.why
        assert row.release
        assert row.source


def test_vllm_hands_caches_over_without_pipelines() -> None:
    flags: dict[str, Any] = {"prompt": "3k", "output": "300", "tpot": "25ms", "rate": "100/s", "quantize": "fp8"}
    found = pools_of("llama3.3-70b", "h100:64", **flags)
    assert found
    assert {one.plan.pipe for one in found} | {one.pools.prefill.plan.pipe for one in found} == {1}
    alone: dict[str, Any] = {"on": "h100:16", "rate": "1/s", "plan": "tp8 pp2", "engine": "vllm"}
    read_simulation(SimulateQuestion("llama3.3-70b", **alone))
    with pytest.raises(Infeasible, match=r"NixlConnector.* has no pipelines.*pipe=2; take pipe=1"):
        read_simulation(SimulateQuestion("llama3.3-70b", prefill_on="h100:8", **alone))
    read_simulation(SimulateQuestion("llama3.3-70b", prefill_on="h100:8", **{**alone, "engine": "sglang"}))


@pytest.mark.parametrize(("servers", "roles"), [(5, "decode"), (7, "decode"), (6, "both prefill decode")])
def test_kernels_of_the_exchange_are_for_some_numbers_of_servers(servers: int, roles: str) -> None:
    model, piece = load_model("deepseek-v3"), parse_slice(f"h100:{8 * servers}")
    plan = parse_serving_plan(f"dp{8 * servers} ep{8 * servers} weights=fp8 compute=fp8_block")
    for engine in ("sglang-ep", "vllm-ep"):
        runs = [role for role in ROLES if not refusal(engine, piece, model, plan, role=role)]
        assert runs == roles.split()
    if servers == 5:
        assert "take data=32,expert=32" in refusal("sglang-ep", piece, model, plan)


def test_pools_are_of_numbers_of_servers_that_somebody_has_run() -> None:
    found = pools_of("qwen3-235b-a22b", "h100:64", prompt="2k", output="1k", tpot="50ms", rate="60/s", quantize="fp8")
    assert found
    chips = {one.pools.prefill.chips for one in found} | {one.pools.decode.chips for one in found}
    assert not chips & {40, 56}


def test_a_latent_has_no_cache_in_nvfp4() -> None:
    b200 = load_chip("b200")
    for engine in ("sglang", "sglang-ep", "vllm", "vllm-ep"):
        assert "nvfp4" in model_caches(engine, b200, load_model("llama3-70b"))
        assert "nvfp4" not in model_caches(engine, b200, load_model("deepseek-r1"))
    asked = read_question(ServeQuestion("deepseek-r1", "b200:8", dtype="nvfp4"))
    assert {one.kv for one in asked.formats_on(asked.targets[0][0])} == {"fp8"}
    asked = read_question(ServeQuestion("deepseek-r1", "b200:8", kv_dtype="nvfp4"))
    assert "latent attention (MLA); take --kv-dtype fp8" in chip_refusal(asked, asked.targets[0][0])


def test_int4_weights_need_whole_groups_on_every_rank() -> None:
    """Groups of 128 inputs of the down and output projections; the published int4 checkpoints of Qwen2.5-72B have a
    hidden dim that is padded from 29,568 to 29,696, and one's own has not."""

    def legal(model: str, chip: str = "a100", engine: str = "vllm") -> list[int]:
        found = load_model(model)
        ways = {ways: parse_serving_plan(f"tp{ways} weights=int4") for ways in (1, 2, 4, 8)}
        return [n for n, plan in ways.items() if not refusal(engine, parse_slice(f"{chip}:{n}"), found, plan)]

    for engine in ("vllm", "sglang", "trtllm"):
        assert legal("qwen2.5-72b", engine=engine) == [1, 2, 4, 8]
    assert legal("Qwen/Qwen2.5-72B-Instruct-AWQ") == [1, 2, 4, 8]
    assert legal("qwen2.5-72b?vocab_size=152064&intermediate_size=29440") == [1, 2]  # 230 groups
    assert legal("qwen2.5-72b?intermediate_size=29824") == [1]  # 233 groups
    assert legal("qwen2.5-14b") == [1, 2, 4]  # 108 groups
    assert legal("llama2-7b") == [1, 2]  # 86 groups
    assert legal("llama2-7b", "mi300x") == [1, 2]
    own = load_model("llama2-7b")
    assert "take tensor=2" in refusal("vllm", parse_slice("a100:4"), own, parse_serving_plan("tp4 weights=int4"))
    assert not refusal("vllm", parse_slice("a100:4"), own, parse_serving_plan("tp4"))


def test_sparse_attention_has_the_cache_that_its_engine_takes_by_itself() -> None:
    """SGLang keeps the cache of DeepSeek V3.2 and GLM-5 in fp8 on Blackwell, and in 16 bits on Hopper."""
    kept = {
        (model, chip): own.kv
        for model in ("deepseek-v3.2", "glm-5", "deepseek-v3")
        for chip in ("b200", "h200")
        if (own := own_formats("sglang", load_chip(chip), load_model(model))) is not None
    }
    assert [pair for pair, kv in kept.items() if kv == "fp8"] == [("deepseek-v3.2", "b200"), ("glm-5", "b200")]
