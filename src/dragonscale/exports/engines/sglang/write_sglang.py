"""SGLang: `python -m sglang.launch_server`.

Its `--tp-size` counts all ranks of a pipeline's stage: `--attn-dp-size` of them are replicas of the attention
(`--dp-size` with `--enable-dp-attention` before 0.5.23), `--ep-size` says how many ways experts are dealt out over
them. `--chunked-prefill-size` and `--max-running-requests` are those of the whole server, which gives each replica of
the attention its part, while graphs are captured by the batch of one. Without `--mem-fraction-static` SGLang finds it
from what has to stay free, as the expectation does; it is written where a plan says one.

Pools that prefill and decode are servers of their own (`--disaggregation-mode`), behind `sglang_router`, which is a
package of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.exports.engines.checkpoints import ServedCheckpoint, checkpoint_for
from dragonscale.exports.keys import flag_words, load_keys
from dragonscale.exports.model_names import served_id
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import HOSTS, LEADER, RANK, LaunchProgram, PlanDifference, WrittenFiles, address
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.serving.engine.legality import NVIDIA, architecture, pairs
from dragonscale.serving.engine.plan import ServingPlan, mesh_axes
from dragonscale.serving.iteration.balance import expert_slots
from dragonscale.serving.space.legal import divisible

TERMS = load_terms("sglang")
PORTS = {"": 30000, "prefill": 30001, "decode": 30002}
APART = 100
"""Between the ports of servers on a host: with DP attention a server also listens on its port + 233 and those after it
(`ZMQ_TCP_PORT_DELTA` of server_args.py), and SGLang's own tests keep servers this far apart."""
BOOTSTRAP = 8998
MEETING = 20000
"""The port at which ranks of several hosts meet."""
PAGE = 64
"""Tokens of the largest page that its attention backends take by themselves (FlashMLA, TensorRT-LLM's kernels)."""
WIDE_CACHES = ("deepseek_v4", "kimi_linear")
"""Types of models whose attention backends have no cache of four bits (srt/arg_groups/kv_cache_hook.py)."""
_ONLINE = TERMS.by_formats("online")


@dataclass(frozen=True)
class SglServer:
    """A server of SGLang's family: its run, the run that says what is drafted (both pools have to know it), its
    checkpoint, and the plan as it runs."""

    run: ServingRun
    whole: ServingRun
    found: ServedCheckpoint
    plan: ServingPlan

    @property
    def world(self) -> int:
        return self.plan.data * self.plan.tensor

    @property
    def requests(self) -> int:
        return self.run.seqs * self.plan.data


def _settings(server: SglServer) -> dict[str, Any]:
    """What the flags of SGLang itself are about. Copies of experts make as many on every rank; two half-batches hide
    the exchange where SGLang cuts the model's layers into operations for that."""
    run, plan, habits, limits = server.run, server.plan, server.run.engine.experts, server.run.engine.scheduling
    nvidia, experts, drafts = is_nvidia(run), run.experts, run.file.speculation.drafts
    exchanged, narrow = exchanges(server), run.model.quantization.kv  # what `auto` would take from the checkpoint
    usual, sizes = "bf16" if narrow and server.found.dtype == "bf16" else "auto", run.engine.host.graph_sizes
    spare = habits.redundant if exchanged else int(experts % plan.expert > 0)
    largest = (sizes[-1][0] if sizes else run.seqs) // (1 + drafts)
    values: dict[str, Any] = {"dealt": bool(experts) and server.world > 1, "exchanged": exchanged, "nvidia": nvidia}
    values |= {"backend": "deepep" if nvidia else "mori", "transfer": "mooncake" if nvidia else "mori"}
    values |= {"ways": sequence_ways(run.model, server.found.plan), "chunk": run.budget * plan.data}
    values |= {"balanced": habits.redundant > 0, "largest_graph": max(min(run.seqs, largest), 1)}
    return values | {
        "cache": TERMS.tables["caches"].get(server.found.plan.kv, usual),
        "redundant": int(expert_slots(experts, plan.expert, spare)) - experts if experts else 0,
        "deepep_mode": {"prefill": "normal", "decode": "low_latency"}.get(run.role, "auto"),
        "halves": exchanged and habits.hidden and model_type(run.fields) in TERMS.lists["overlapped"],
        "mixed": limits.mixed and limits.scheduler == "chunked" and not drafts and not run.role,
    }


def is_nvidia(run: ServingRun) -> bool:
    return architecture(run.slice.chip) in NVIDIA


def exchanges(server: SglServer) -> bool:
    """Whether tokens are sent to experts by kernels for that."""
    return bool(server.run.experts) and server.world > 1 and server.run.engine.experts.exchange == "all_to_all"


def _env(run: ServingRun, drafts: int) -> dict[str, str]:
    """Buffers of the exchange are made for so many tokens of a rank: DeepEP's in low latency for every sequence with
    its drafts, MoRI's for a chunk of prompts too."""
    nvidia, tokens = is_nvidia(run), run.seqs * (1 + drafts)
    if run.engine.experts.exchange != "all_to_all" or (nvidia and run.prefills):
        return {}
    most = -(-tokens // 128) * 128 if nvidia else max(run.budget, tokens, 4096)
    return {f"SGLANG_{'DEEPEP' if nvidia else 'MORI'}_NUM_MAX_DISPATCH_TOKENS_PER_RANK": str(most)}


def write(run: ServingRun) -> WrittenFiles:
    """The command of a replica, or those of two pools and of the router before them."""
    own = _server(run, run)
    if run.prefill is None:
        return own
    lead = ["sglang_router.launch_router", *flag_words(load_keys("sglang-router"), {"--pd-disaggregation": True})]
    front = router(run, run.prefill, "sglang-router", lead, PORTS)
    return own.with_pool(_server(run.prefill, run), (front,), (TERMS.say("router_names"),))


def router(run: ServingRun, prefill: ServingRun, keys: str, lead: list[Any], ports: Mapping[str, int]) -> LaunchProgram:
    """The load balancer; `--prefill` and `--decode` come once for each server."""
    table, words = load_keys(keys), ["python", "-m", *lead]
    for role, pool in (("prefill", prefill), ("decode", run)):
        for place in range(pool.file.replicas or 1):
            where = ["http://" + address(role, place, ports[role]), *([BOOTSTRAP] if role == "prefill" else [])]
            words += flag_words(table, {f"--{role}": where})
    words += flag_words(table, {"--host": "0.0.0.0", "--port": ports[""]})
    return LaunchProgram("router", tuple(words), 1, 0, port=ports[""])


def _server(run: ServingRun, whole: ServingRun) -> WrittenFiles:
    online = {} if run.file.plan.attention else online_words(run.slice.chip)  # it would take the attention too
    found = checkpoint_for(engine_word(run), run.slice.chip, run.model, run.file.model, run.file.plan, online)
    server, differences = SglServer(run, whole, found, found.plan), list(found.differences)
    if server.plan.spread == "sequence" and sequence_ways(run.model, found.plan) == 1 and server.plan.tensor > 1:
        differences.append(TERMS.difference("spread", plan=server.plan))
        server = replace(server, plan=replace(server.plan, spread="copy"))
    check(server)
    settings, env = _settings(server), _env(run, whole.file.speculation.drafts)
    if exchanges(server) and run.engine.experts.hidden and not settings["halves"]:
        differences.append(TERMS.difference("halves"))
    image = f"lmsysorg/sglang:v{load_keys('sglang').version}" if is_nvidia(run) else ""
    command = SglCommand("sglang.launch_server", "sglang", PORTS, MEETING, "EAGLE")
    return served(server, command, settings, differences, env=env, image=image)


@dataclass(frozen=True)
class SglCommand:
    """What differs between the servers of the family: the module, its keys, ports, and its word for drafts by the
    model's own heads."""

    module: str
    keys: str
    ports: Mapping[str, int]
    meeting: int
    heads: str


def served(
    server: SglServer, command: SglCommand, settings: dict[str, Any], differences: list[PlanDifference], **shown: Any
) -> WrittenFiles:
    """One server; `settings` are what its flags are about, `shown` the image and the environment of its program."""
    run, plan, terms = server.run, server.plan, load_terms(command.keys)
    drafts, notes = draft_flags(server.whole, command.heads)
    flags = terms.group("server", server, **settings) | drafts | terms.group("role", server, **settings)
    if run.hosts > 1:
        flags |= {"--nnodes": HOSTS, "--node-rank": RANK, "--dist-init-addr": LEADER + f":{command.meeting}"}
    port = command.ports[run.role]
    words = flag_words(load_keys(command.keys), {**flags, "--host": "0.0.0.0", "--port": port})
    written = WrittenFiles(differences=tuple(differences), notes=(*server.found.notes, *notes))
    return run.served(plan, ("python", "-m", command.module, *words), written, port=port, apart=APART, **shown)


def draft_flags(run: ServingRun, heads: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Who drafts, and a note where a checkpoint is to be named. sgl-jax (whose word for the model's own `heads` is
    NEXTN) overlaps its scheduler only with chains of those and of EAGLE-3."""
    drafts, in_jax = run.file.speculation, heads == "NEXTN"
    if not drafts.drafts:
        return {}, ()
    chain = {
        "--speculative-num-steps": drafts.drafts,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": drafts.drafts + 1,
    }
    if drafts.draft:
        who = {"--speculative-algorithm": "STANDALONE", "--speculative-draft-model-path": served_id(drafts.draft)}
        return {**who, **chain, **({"--disable-overlap-schedule": True} if in_jax else {})}, ()
    if has_own_heads(run.fields):
        return {"--speculative-algorithm": heads, **chain}, ()
    head = f"./{served_id(run.file.model).rstrip('/').rpartition('/')[2]}-EAGLE3"
    who = {"--speculative-algorithm": "EAGLE3", "--speculative-draft-model-path": head}
    return {**who, **({"--attention-backend": "fa"} if in_jax else {}), **chain}, (TERMS.say("eagle", head=head),)


def check(server: SglServer) -> None:
    """What SGLang refuses beyond the rules of the engine's row."""
    run, plan, kind = server.run, server.plan, model_type(server.run.fields)
    sizes, slices, budget = divisible(run.model), max(server.world // plan.expert, 1), run.budget
    values = {
        "drafts": server.whole.file.speculation,
        "wide_caches": kind.startswith(WIDE_CACHES),
        "whole_experts": kind.startswith("nemotron_h"),
        "all_or_none": plan.expert in (1, server.world),
        "size": next((size for size in sizes.expert_hidden if size % slices), 0),
        "ranks": server.world * plan.pipe,
        "paged": sizes.latent or architecture(run.slice.chip) == "blackwell",
        "near": -(-budget // PAGE) * PAGE,
    }
    said = {"slices": slices, "hosts": run.hosts, "budget": budget, "PAGE": PAGE, "world": server.world}
    TERMS.refuse(run, **{**values, **said, "plan": plan, "engine": engine_word(run)})


def engine_word(run: ServingRun) -> str:
    """The engine without settings."""
    return run.file.engine.partition(",")[0].strip() or run.engine.name


def online_words(chip: Chip) -> dict[tuple[str, str], str]:
    """What `--quantization` makes of a 16-bit checkpoint on a chip, by weights and matmuls. Weights in fp8 are
    multiplied in fp8 where the GPU can, so that fp8 weights with 16-bit matmuls are a checkpoint that was quantised
    before, except on Ampere; `quark_mxfp4` is for AMD's GPUs.

    >>> from dragonscale.physics.hardware import load_chip
    >>> online_words(load_chip("h100")), online_words(load_chip("a100"))
    ({('fp8', 'fp8'): 'fp8'}, {('fp8', 'bf16'): 'fp8'})
    """
    here, amd = pairs("sglang", chip), architecture(chip) not in NVIDIA
    found: dict[tuple[str, str], str] = {}
    for pair, word in _ONLINE.items():
        if pair in here and word not in found.values() and (amd or word != "quark_mxfp4"):
            found[pair] = word
    return found


def sequence_ways(model: Transformer, plan: ServingPlan) -> int:
    """Ranks over which each sequence's cache is split (`--dcp-size`): those beyond the KV heads.

    >>> from dragonscale.models import load_model
    >>> [sequence_ways(load_model("llama3-8b"), ServingPlan(ways, spread="sequence")) for ways in (8, 16)]
    [1, 2]
    """
    sizes = divisible(model)
    heads = 1 if sizes.latent and not sizes.kv_heads else min(sizes.kv_heads, default=plan.tensor)
    return int(mesh_axes(plan, heads)["share"]) if plan.spread == "sequence" else 1


def _flat(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = fields.get("text_config")
    return {**fields, **inner} if isinstance(inner, Mapping) else fields


def model_type(fields: Mapping[str, Any]) -> str:
    """The type of the language model."""
    return str(_flat(fields).get("model_type", ""))


def has_own_heads(fields: Mapping[str, Any]) -> bool:
    """Whether a checkpoint has layers that predict further tokens (multi-token prediction), which need
    no draft model."""
    names = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    return any(_flat(fields).get(name) for name in names)
