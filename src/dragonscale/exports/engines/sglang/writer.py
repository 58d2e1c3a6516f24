"""SGLang: `python -m sglang.launch_server`.

Its `--tp-size` counts all ranks of a pipeline's stage: `--attn-dp-size` of them are replicas of the attention
(`--dp-size` with `--enable-dp-attention` before 0.5.23), `--ep-size` says how many ways experts are dealt out over
them. `--chunked-prefill-size` and `--max-running-requests` are those of the whole server, which gives each replica of
the attention its part, while graphs are captured by the batch of one. Without `--mem-fraction-static` SGLang finds it
from what has to stay free, as the expectation does; it is written where a plan says one.

Pools that prefill and decode are servers of their own (`--disaggregation-mode`), behind `sglang_router`, which is a
package of its own.
"""

from dataclasses import replace
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.engines.limits import request_length
from dragonscale.exports.engines.sglang.words import (
    draft_flags,
    engine_word,
    expert_flags,
    model_flags,
    model_type,
    sequence_ways,
    served,
)
from dragonscale.exports.flags import flag_words
from dragonscale.exports.keys import load_keys
from dragonscale.exports.runs import ServingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import HOSTS, LEADER, RANK, address
from dragonscale.exports.written import LaunchProgram, PlanDifference, WrittenFiles
from dragonscale.serving.legal import divisible
from dragonscale.serving.legality import NVIDIA, architecture
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("sglang")

PORTS = {"": 30000, "prefill": 30001, "decode": 30002}
BOOTSTRAP = 8998
MEETING = 20000
"""The port at which ranks of several hosts meet."""
PAGE = 64
"""Tokens of the largest page that its attention backends take by themselves (FlashMLA, TensorRT-LLM's kernels)."""

WIDE_CACHES = ("deepseek_v4", "kimi_linear")
"""Types of models whose attention backends have no cache of four bits (srt/arg_groups/kv_cache_hook.py)."""


def write(run: ServingRun) -> WrittenFiles:
    """The command of a replica, or those of two pools and of the router before them."""
    if run.prefill is not None:
        return _pools(run, run.prefill)
    return _server(run, run)


def _pools(run: ServingRun, prefill: ServingRun) -> WrittenFiles:
    decode, other = _server(run, run), _server(prefill, run)
    where = "The router names servers as prefill-0, decode-0, …: put the addresses of their first hosts there."
    differences = (*decode.differences, *(one for one in other.differences if one not in decode.differences))
    notes = tuple(dict.fromkeys((*decode.notes, *other.notes)))
    programs = (*decode.programs, *other.programs, _router(run, prefill))
    return WrittenFiles({}, programs, differences, decode.as_run, notes, (where,))


def _router(run: ServingRun, prefill: ServingRun) -> LaunchProgram:
    """The load balancer; `--prefill` and `--decode` come once for each server."""
    table, words = load_keys("sglang-router"), ["python", "-m", "sglang_router.launch_router"]
    words += flag_words(table, {"--pd-disaggregation": True})
    for place in range(prefill.file.replicas or 1):
        words += flag_words(table, {"--prefill": ["http://" + address("prefill", place, PORTS["prefill"]), BOOTSTRAP]})
    for place in range(run.file.replicas or 1):
        words += flag_words(table, {"--decode": ["http://" + address("decode", place, PORTS["decode"])]})
    words += flag_words(table, {"--host": "0.0.0.0", "--port": PORTS[""]})
    return LaunchProgram("router", tuple(words), 1, 0, port=PORTS[""])


def _server(run: ServingRun, whole: ServingRun) -> WrittenFiles:
    """One server; `whole` is the run that says what is drafted, which both pools have to know."""
    found = served(run)
    plan, differences = found.plan, list(found.differences)
    ways = sequence_ways(run.model, plan)
    if plan.spread == "sequence" and ways == 1 and plan.tensor > 1:
        differences.append(_unsplit(plan))
        plan = replace(plan, spread="copy")
    check(run, whole, plan)
    dealt, more = expert_flags(run, plan)
    drafts, notes = draft_flags(whole)
    hosts, chips = hosts_of(run.slice)
    flags = {
        **model_flags(run, found),
        **_degrees(plan, ways),
        **dealt,
        **_limits(run, plan),
        **drafts,
        **_role(run),
        **_several(hosts),
        "--host": "0.0.0.0",
        "--port": PORTS[run.role],
    }
    words = ("python", "-m", "sglang.launch_server", *flag_words(load_keys("sglang"), flags))
    program = LaunchProgram(
        run.role or "serve",
        words,
        hosts,
        chips,
        copies=run.file.replicas or 1,
        env=_env(run, whole),
        port=PORTS[run.role],
        image=f"lmsysorg/sglang:v{load_keys('sglang').version}" if architecture(run.slice.chip) in NVIDIA else "",
    )
    as_run = plan if plan != run.file.plan else None
    return WrittenFiles({}, (program,), (*differences, *more), as_run, (*found.notes, *notes))


def _unsplit(plan: ServingPlan) -> PlanDifference:
    why = f"tensor={plan.tensor} splits KV heads, and no ranks are left"
    return PlanDifference("spread=sequence", "nothing is split along sequences", why, "spread")


def _degrees(plan: ServingPlan, ways: int) -> dict[str, Any]:
    return {
        "--tp-size": plan.data * plan.tensor,
        "--pp-size": plan.pipe if plan.pipe > 1 else None,
        "--attn-dp-size": plan.data if plan.data > 1 else None,
        "--dcp-size": ways if ways > 1 else None,
    }


def _limits(run: ServingRun, plan: ServingPlan) -> dict[str, Any]:
    """Limits of the whole server, and graphs of one replica of the attention."""
    limits, sizes = run.engine.scheduling, run.engine.host.graph_sizes
    drafts = run.file.speculation.drafts
    flags: dict[str, Any] = {
        "--mem-fraction-static": run.file.launch.memory_fraction,
        "--chunked-prefill-size": limits.max_tokens * plan.data,
        "--max-prefill-tokens": limits.max_tokens,
        "--context-length": request_length(run),
    }
    if run.role != "prefill":
        largest = sizes[-1][0] if sizes else run.seqs
        flags["--max-running-requests"] = run.seqs * plan.data
        graphs = run.engine.host.graphs
        flags["--cuda-graph-max-bs-decode"] = max(min(run.seqs, largest // (1 + drafts)), 1) if graphs else None
        flags["--disable-cuda-graph"] = None if graphs else True
    if limits.mixed and limits.scheduler == "chunked" and not drafts and not run.role:
        flags["--enable-mixed-chunk"] = True
    return flags


def _role(run: ServingRun) -> dict[str, Any]:
    if not run.role:
        return {}
    backend = "mooncake" if architecture(run.slice.chip) in NVIDIA else "mori"
    flags: dict[str, Any] = {"--disaggregation-mode": run.role, "--disaggregation-transfer-backend": backend}
    if run.role == "prefill":
        flags["--disaggregation-bootstrap-port"] = BOOTSTRAP
    return flags


def _several(hosts: int) -> dict[str, Any]:
    if hosts == 1:
        return {}
    return {"--nnodes": HOSTS, "--node-rank": RANK, "--dist-init-addr": LEADER + f":{MEETING}"}


def _env(run: ServingRun, whole: ServingRun) -> dict[str, str]:
    """Buffers of the exchange are made for so many tokens of a rank: DeepEP's in low latency for every sequence with
    its drafts, MoRI's for a chunk of prompts too."""
    if run.engine.experts.exchange != "all_to_all":
        return {}
    tokens = run.seqs * (1 + whole.file.speculation.drafts)
    if architecture(run.slice.chip) not in NVIDIA:
        return {
            "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK": str(max(run.engine.scheduling.max_tokens, tokens, 4096))
        }
    return (
        {"SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": str(-(-tokens // 128) * 128)}
        if run.role != "prefill"
        else {}
    )


def check(run: ServingRun, whole: ServingRun, plan: ServingPlan) -> None:
    """What SGLang refuses beyond the rules of the engine's row."""
    drafts, sizes, hosts = whole.file.speculation, divisible(run.model), hosts_of(run.slice)[0]
    if drafts.drafts and plan.pipe > 1:
        raise TERMS.refused("drafts_in_pipeline", plan=plan)
    if drafts.draft and plan.data > 1:
        raise TERMS.refused("draft_with_data", plan=plan)
    kind, world = model_type(run.fields), plan.data * plan.tensor
    if plan.kv == "nvfp4" and kind.startswith(WIDE_CACHES):
        raise Infeasible(f"SGLang has no cache in nvfp4 for {run.model.name}; take kv=fp8.")
    if kind.startswith("nemotron_h") and plan.expert not in (1, world):
        raise TERMS.refused("all_or_none", run=run, plan=plan, world=world)
    slices = max(plan.data * plan.tensor // plan.expert, 1)
    for size in sizes.expert_hidden:
        if size % slices:
            raise TERMS.refused("expert_slices", run=run, size=size, slices=slices, near=plan.data * plan.tensor)
    if plan.data * plan.tensor * plan.pipe % hosts:
        raise TERMS.refused("even_hosts", plan=plan, hosts=hosts)
    budget = run.engine.scheduling.max_tokens
    paged = sizes.latent or architecture(run.slice.chip) == "blackwell"
    if budget % PAGE and paged:
        raise TERMS.refused(
            "whole_pages", PAGE=PAGE, budget=budget, engine=engine_word(run), near=-(-budget // PAGE) * PAGE
        )
