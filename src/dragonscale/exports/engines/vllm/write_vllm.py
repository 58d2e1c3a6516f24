"""vLLM on GPUs: `vllm serve`, one process for each host of a replica.

`engine_flags` is what the engine itself is told, the same for whoever starts vLLM (`vllm serve`, Dynamo's worker,
llm-d's pods). A replica over several hosts is the same command on each (`--nnodes`, `--node-rank`, `--master-addr`);
hosts other than the first have no API server (`--headless`). Pools that prefill and decode apart are two commands that
hand caches over by NIXL, and a router in front of them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.engines.checkpoints import ServedCheckpoint, checkpoint_for
from dragonscale.exports.keys import flag_words, load_keys
from dragonscale.exports.model_names import is_changed, served_id
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import HOSTS, LEADER, RANK, LaunchProgram, PlanDifference, Word, WrittenFiles, address
from dragonscale.models import load_model
from dragonscale.serving.engine.engine import filled
from dragonscale.serving.engine.legality import architecture
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.legal import divisible

TERMS = load_terms("vllm")

ONLINE = TERMS.by_formats("online")
"""What vLLM quantises a 16-bit checkpoint to while it loads it, linear layers and experts (config/quantization.py)."""
WEIGHT_ONLY = frozenset({"turing", "ampere"})
"""Chips without fp8 units: what is quantised to fp8 there has its weights in fp8 and is multiplied in 16 bits (Marlin).
"""
ATTENTION_LAYERS = "*.self_attn.*"
ONLY_BF16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4", "gpt_oss"})
"""Types of models that vLLM refuses in float16 (config/model.py; gpt-oss by its quantisation)."""
UNCOUNTED = frozenset({"dbrx"})
"""Types whose number of experts is nested in their config, where vLLM does not look for it."""
WITHOUT = frozenset({"palm"})
"""Types of models that were never published, and that vLLM has no class for."""
REMOTE = frozenset({"mimo", "minimax_text_01", "deepseek", "grok-1", "kimi_k2", "kimi_k25", "kimi_linear"})
"""Types whose config comes with their repository's own code."""
SMALL_BUDGET = 1024


@dataclass
class EngineFlags:
    """Flags by name, the checkpoint that they are for, variables of the environment, and what is said about them."""

    flags: dict[str, Any]
    checkpoint: ServedCheckpoint
    env: dict[str, str] = field(default_factory=dict)
    differences: list[PlanDifference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    plan: ServingPlan = field(default_factory=ServingPlan)


def engine_name(run: ServingRun) -> str:
    """The engine without settings of its own."""
    return run.file.engine.partition(",")[0].strip()


def engine_flags(run: ServingRun) -> EngineFlags:
    """Everything that a plan says to vLLM on GPUs."""
    engine, plan = engine_name(run), run.file.plan
    words, only = online_words(architecture(run.slice.chip)), only_wide(run)
    checkpoint = checkpoint_for(engine, run.slice.chip, run.model, run.file.model, plan, words, only)
    said = EngineFlags({}, checkpoint, notes=list(checkpoint.notes), differences=list(checkpoint.differences))
    said.plan = checkpoint.plan
    said.flags |= TERMS.group("degrees", plan=plan, context=_context(run, said), **_experts(run, said))
    said.flags |= format_flags(run, checkpoint)
    said.flags |= limit_flags(run)
    handed = {"drafts": drafts(run, said), "transfer": transfer(run.role)}
    said.flags |= TERMS.group("engine", run=run, largest=largest_graph(run), **handed)
    return said


def only_wide(run: ServingRun) -> str:
    """The one 16-bit format that vLLM runs a model in; empty where it takes both. A model or a plan that it refuses is
    refused."""
    kind, plan = str(run.fields.get("model_type", "")), run.file.plan
    if kind in WITHOUT:
        raise Infeasible(f"vLLM has no class for models of type {kind}, which {run.model.name} is.")
    if plan.expert > 1 and kind in UNCOUNTED:
        raise TERMS.refused("uncounted_experts", run=run)
    if kind not in ONLY_BF16:
        return ""
    if "fp16" in (plan.weights, plan.compute):
        raise Infeasible(f"vLLM does not run models of type {kind} in float16; take bf16.")
    return "bf16"


def online_words(kind: str) -> dict[tuple[str, str], str]:
    """What vLLM makes of a 16-bit checkpoint on a kind of chip."""
    if kind in WEIGHT_ONLY:
        return {("fp8", "bf16"): "fp8_per_tensor", ("fp8", "fp16"): "fp8_per_tensor"}
    return dict(ONLINE)


def _context(run: ServingRun, said: EngineFlags) -> int:
    """Ranks of `tensor` beyond the KV heads that split the cache along sequences instead of copying it; 0 where there
    are none.

    vLLM's rule for grouped heads: query heads of a KV head are a multiple of those ranks."""
    plan, sizes = run.file.plan, divisible(run.model)
    if plan.spread != "sequence" or plan.tensor == 1:
        return 0
    heads = 1 if sizes.latent and not sizes.kv_heads else max(sizes.kv_heads, default=0)
    ranks = plan.tensor // heads if heads else 0
    if ranks <= 1:
        why = f"the {heads} KV heads are split over tensor={plan.tensor} as they are" if heads else "it has no KV heads"
        said.differences.append(TERMS.difference("spread", why=why))
        said.plan = replace(said.plan, spread="copy")
        return 0
    if not sizes.latent and (sizes.heads // heads) % ranks:
        queries = sizes.heads // heads
        raise TERMS.refused("split_cache", plan=plan, heads=heads, ranks=ranks, sizes=sizes, queries=queries)
    return ranks


def _experts(run: ServingRun, said: EngineFlags) -> dict[str, Any]:
    """How tokens go to experts that are dealt over all ranks; two half-batches run with DeepEP only."""
    plan = run.file.plan
    if plan.expert == 1 or engine_name(run) != "vllm-ep":
        return {"exchange": "", "halves": False}
    slots = -(-(run.experts + run.engine.experts.redundant) // plan.expert) * plan.expert  # every rank has as many
    amd = architecture(run.slice.chip).startswith("cdna")
    how = "low_latency" if is_low_latency(run) else "high_throughput"
    said.differences += [] if run.role else [_one_exchange(run, how)]
    said.notes += TERMS.notes({"deepep": not amd})
    spare = {"num_redundant_experts": slots - run.experts}
    return {"exchange": f"{'mori' if amd else 'deepep'}_{how}", "balancer": spare, "halves": not amd}


def _one_exchange(run: ServingRun, how: str) -> PlanDifference:
    """That prompts and answers are exchanged by the same kernels."""
    small = TERMS.say("fewer_tokens", tokens=limit_flags(run)["--max-num-batched-tokens"])
    return TERMS.difference("one_exchange", kernels=how.replace("_", "-"), less=small if is_decode_heavy(run) else "")


def is_low_latency(run: ServingRun) -> bool:
    """Whether tokens go to experts by kernels for few tokens: their buffers hold a whole iteration of every rank, so
    that prompts of a usual token budget do not go through them."""
    if engine_name(run) != "vllm-ep" or run.role == "prefill":
        return False
    return run.role == "decode" or run.engine.scheduling.max_tokens <= SMALL_BUDGET or is_decode_heavy(run)


def is_decode_heavy(run: ServingRun) -> bool:
    """Whether answers are as long as prompts and longer, so that an engine that does both does best by kernels for few
    tokens."""
    traffic, budget = run.file.traffic, run.file.launch.token_budget
    return not run.role and not budget and 0 < traffic.prompt <= traffic.output


def mixed_budget(seqs: int, drafts: int) -> int:
    """Tokens of an iteration with low-latency kernels where prompts run in it too: room for as many of theirs as of all
    sequences."""
    return max(SMALL_BUDGET, 2 * seqs * (1 + drafts))


def decode_budget(seqs: int, drafts: int) -> int:
    """Tokens of an iteration of a pool that only decodes by low-latency kernels: vLLM's own default for these, or all
    its sequences."""
    return max(256, seqs * (1 + drafts))


def format_flags(run: ServingRun, checkpoint: ServedCheckpoint) -> dict[str, Any]:
    """Dtypes and quantisation."""
    kv, usual = checkpoint.plan.kv, "auto" if not run.model.quantization.kv else ""
    assumed = {}
    if is_changed(run.file.model):
        pairs = (pair.partition("=")[::2] for pair in run.file.model.rpartition("?")[2].split("&") if pair)
        assumed = {name: _value(text) for name, text in pairs}
    values = {"cache": TERMS.tables["caches"].get(kv) or usual or TERMS.tables["dtypes"][kv], "assumed": assumed}
    return TERMS.group("formats", checkpoint=checkpoint, remote=run.fields.get("model_type") in REMOTE, **values)


def _value(text: str) -> Any:
    return int(text) if text.removeprefix("-").isdecimal() else text


def limit_flags(run: ServingRun) -> dict[str, Any]:
    """How long requests are, how many run at once, how many tokens an iteration has, how much memory it takes."""
    seqs, tokens = sequences(run), run.engine.scheduling.max_tokens
    if is_low_latency(run) and (run.role or is_decode_heavy(run)) and not run.file.launch.token_budget:
        tokens = (decode_budget if run.role else mixed_budget)(seqs, run.file.speculation.drafts)
    if tokens < seqs:
        raise TERMS.refused("tokens_below_sequences", tokens=tokens, seqs=seqs)
    return TERMS.group("limits", run, seqs=seqs, tokens=tokens)


def sequences(run: ServingRun) -> int:
    """Sequences at once; an engine that prefills alone takes as many as it would of itself."""
    if run.role == "prefill" and not run.file.launch.max_seqs:
        return min(run.engine.scheduling.max_sequences, run.engine.scheduling.max_tokens)
    return run.seqs


def largest_graph(run: ServingRun) -> int | None:
    """The largest batch that is captured: that of all sequences with their drafts, as far as the engine has graphs."""
    sizes = run.engine.host.graph_sizes
    if not sizes or not run.engine.host.graphs or run.role == "prefill":
        return None
    rows = sequences(run) * (1 + run.file.speculation.drafts)
    return min(int(filled(min(rows, sizes[-1][0]), sizes)), sizes[-1][0], run.engine.scheduling.max_tokens)


def has_heads(run: ServingRun) -> bool:
    """Whether the checkpoint has multi-token heads of its own."""
    return any(section.name.startswith("mtp.") for section in run.model.extras)


def drafts(run: ServingRun, said: EngineFlags) -> dict[str, Any] | None:
    """Who drafts: a small model, the checkpoint's own multi-token heads, or an EAGLE head that somebody has trained for
    it."""
    own = run.file.speculation
    if not own.drafts or run.role == "prefill":
        return None
    if own.draft:
        sizes = divisible(load_model(own.draft))
        ranks = run.file.plan.tensor
        fits = sizes.heads % ranks == 0 and all(heads % ranks == 0 or ranks % heads == 0 for heads in sizes.kv_heads)
        who = {"method": "draft_model", "model": served_id(own.draft), "num_speculative_tokens": own.drafts}
        return {**who, "draft_tensor_parallel_size": ranks if fits else 1}
    if has_heads(run):
        return {"method": "mtp", "num_speculative_tokens": own.drafts}
    repo = served_id(run.file.model)
    head = f"./{repo.rsplit('/', 1)[-1]}-EAGLE3"
    said.notes.append(f"{head} stands for an EAGLE-3 head for {repo}: put its path or repository there.")
    return {"method": "eagle3", "model": head, "num_speculative_tokens": own.drafts}


def both_roles(words: Sequence[Word]) -> list[Word]:
    """A command whose connector has the one role of pools that a router pairs itself (Dynamo, llm-d)."""
    found = list(words)
    if _TRANSFER in found:
        at = found.index(_TRANSFER) + 1
        found[at] = json.dumps({**json.loads(str(found[at])), "kv_role": "kv_both"})
    return found


_TRANSFER = "--kv-transfer-config"


def transfer(role: str) -> dict[str, str] | None:
    """How a pool hands caches over."""
    if not role:
        return None
    return {"kv_connector": "NixlConnector", "kv_role": "kv_producer" if role == "prefill" else "kv_consumer"}


IMAGE = "vllm/vllm-openai:v{}"
PORTS = {"": 8000, "prefill": 8100, "decode": 8200}
ROUTER_PORT = 8000
NIXL_PORT = "5600"


def write(run: ServingRun) -> WrittenFiles:
    """The command of a replica, or those of both pools and their router."""
    own = _replica(run)
    if run.prefill is not None:
        return own.with_pool(_replica(run.prefill), (router(run),), (TERMS.say("nixl_host"),))
    several = (run.file.replicas or 1) > 1
    return replace(own, routing=TERMS.notes({"behind_router": several}, replicas=run.file.replicas))


def _replica(run: ServingRun) -> WrittenFiles:
    """The command of one replica."""
    own, table, port, flags = engine_flags(run), load_keys("vllm"), PORTS[run.role], dict[str, Any]()
    if run.hosts > 1:
        flags = {"--nnodes": HOSTS, "--node-rank": RANK, "--master-addr": LEADER}
    env = {**own.env, **({"VLLM_NIXL_SIDE_CHANNEL_PORT": NIXL_PORT} if run.role else {})}
    words = ("vllm", "serve", own.checkpoint.word, *flag_words(table, {**own.flags, "--port": port, **flags}))
    others = tuple(flag_words(table, {"--headless": True})) if flags else ()
    written = WrittenFiles(differences=tuple(own.differences), notes=tuple(own.notes))
    image = IMAGE.format(table.version)
    return run.served(own.plan, words, written, env=env, others=others, image=image, port=port)


def router(run: ServingRun) -> LaunchProgram:
    """What sends requests to a prefill replica and then to one that decodes."""
    assert run.prefill is not None
    words = ["vllm-router", *flag_words(load_keys("vllm-router"), {"--vllm-pd-disaggregation": True})]
    for role, pool in (("prefill", run.prefill), ("decode", run)):
        for number in range(pool.file.replicas or 1):
            words += flag_words(load_keys("vllm-router"), {f"--{role}": "http://" + address(role, number, PORTS[role])})
    words += flag_words(load_keys("vllm-router"), {"--host": "0.0.0.0", "--port": ROUTER_PORT})
    image = f"vllm/vllm-router:v{load_keys('vllm-router').version}"
    return LaunchProgram("router", tuple(words), 1, 0, image=image, port=ROUTER_PORT)
