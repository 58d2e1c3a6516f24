"""sgl-jax, SGLang on TPUs: `python -m sgl_jax.launch_server`.

Its `--tp-size` counts all JAX devices, of which a TPU7x chip is two; `--dp-size` of them are replicas of the attention,
and `--ep-size` deals out the experts. `--max-running-requests` is that of the whole server while a chunk of prompts is
that of one replica. A step is one compiled program for each of a few batch sizes (`--precompile-bs-paddings`), and
weights are quantised on loading as a YAML that comes with it says.

Pools that prefill and decode find each other through a bootstrap server, behind a router of its own; both come with it.
"""

from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.engines.limits import request_length
from dragonscale.exports.engines.schemes import ServedCheckpoint, checkpoint_for
from dragonscale.exports.engines.sgl_jax.reader import ONLINE
from dragonscale.exports.engines.sglang.words import has_own_heads
from dragonscale.exports.flags import flag_words
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import ServingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import HOSTS, LEADER, RANK, address
from dragonscale.exports.written import LaunchProgram, WrittenFiles
from dragonscale.serving.legal import divisible
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("sgl-jax")

ENGINE = "sgl-jax"
PORTS = {"": 30000, "prefill": 30100, "decode": 30200}
BOOTSTRAP = 8998
MEETING = 5000
"""The port at which hosts meet."""
CACHE = "/tmp/jit_cache"
"""Where compiled programs are kept: without it every start compiles them for minutes."""


def write(run: ServingRun) -> WrittenFiles:
    """The command of a replica, or those of two pools, of the server where they meet, and of the router before them."""
    if run.prefill is None:
        return _server(run, run)
    decode, other = _server(run, run), _server(run.prefill, run)
    where = "Servers are named prefill-0, decode-0, bootstrap-0, …: put the addresses of their first hosts there."
    notes = tuple(dict.fromkeys((*decode.notes, *other.notes)))
    both = (*decode.differences, *(one for one in other.differences if one not in decode.differences))
    programs = (*decode.programs, *other.programs, _bootstrap(), _router(run, run.prefill))
    return WrittenFiles({}, programs, both, decode.as_run, notes, (where,))


def _bootstrap() -> LaunchProgram:
    flags = flag_words(load_keys(ENGINE), {"--host": "0.0.0.0", "--port": BOOTSTRAP})
    return LaunchProgram(
        "bootstrap", ("python", "-m", "sgl_jax.srt.disaggregation.run_bootstrap", *flags), 1, 0, port=BOOTSTRAP
    )


def _router(run: ServingRun, prefill: ServingRun) -> LaunchProgram:
    table, words = load_keys("sgl-jax-router"), ["python", "-m", "sgl_jax.srt.disaggregation.launch_router"]
    words += flag_words(table, {"--pd-disaggregation": True, "--mini-lb": True})
    for place in range(prefill.file.replicas or 1):
        words += flag_words(table, {"--prefill": ["http://" + address("prefill", place, PORTS["prefill"]), BOOTSTRAP]})
    for place in range(run.file.replicas or 1):
        words += flag_words(table, {"--decode": ["http://" + address("decode", place, PORTS["decode"])]})
    words += flag_words(table, {"--host": "0.0.0.0", "--port": PORTS[""]})
    return LaunchProgram("router", tuple(words), 1, 0, port=PORTS[""])


def _server(run: ServingRun, whole: ServingRun) -> WrittenFiles:
    plan = run.file.plan
    online = {} if plan.attention else ONLINE
    found = checkpoint_for(ENGINE, run.slice.chip, run.model, run.file.model, plan, online)
    plan = found.plan
    check(run, whole, plan)
    drafts, notes = _drafts(whole)
    hosts, chips = hosts_of(run.slice)
    flags = {
        **_model(found, plan),
        **degrees(run, plan),
        **_limits(run, plan),
        **drafts,
        **_role(run),
        **({"--nnodes": HOSTS, "--node-rank": RANK, "--dist-init-addr": LEADER + f":{MEETING}"} if hosts > 1 else {}),
        "--host": "0.0.0.0",
        "--port": PORTS[run.role],
    }
    words = ("python", "-m", "sgl_jax.launch_server", *flag_words(load_keys(ENGINE), flags))
    program = LaunchProgram(
        run.role or "serve",
        words,
        hosts,
        chips,
        copies=run.file.replicas or 1,
        env={"JAX_COMPILATION_CACHE_DIR": CACHE},
        port=PORTS[run.role],
    )
    as_run = plan if plan != run.file.plan else None
    return WrittenFiles({}, (program,), found.differences, as_run, (*found.notes, *notes))


def _model(found: ServedCheckpoint, plan: ServingPlan) -> dict[str, Any]:
    return {
        "--model-path": found.word,
        "--served-model-name": found.served or None,
        "--dtype": "bfloat16",
        "--quantization-config-path": found.online or None,
        "--kv-cache-dtype": "fp8_e4m3" if plan.kv == "fp8" else "auto",
    }


def degrees(run: ServingRun, plan: ServingPlan) -> dict[str, Any]:
    """Degrees by devices: what is dealt over all chips goes on between the devices of each."""
    each, world = run.slice.chip.devices, plan.data * plan.tensor
    experts = divisible(run.model).experts
    dealt = plan.expert * (each if plan.expert == world else 1)
    return {
        "--tp-size": world * each,
        "--dp-size": plan.data if plan.data > 1 else None,
        "--ep-size": dealt if experts else None,
        "--moe-backend": "epmoe" if experts else None,
    }


def _limits(run: ServingRun, plan: ServingPlan) -> dict[str, Any]:
    limits, memory = run.engine.scheduling, run.engine.memory
    flags: dict[str, Any] = {
        "--mem-fraction-static": memory.share,
        "--page-size": memory.page,
        "--chunked-prefill-size": limits.max_tokens,
        "--max-prefill-tokens": limits.max_tokens,
        "--context-length": request_length(run),
    }
    if run.role != "prefill":
        flags |= {"--max-running-requests": run.seqs * plan.data, "--precompile-bs-paddings": _sizes(run, plan)}
    if run.role:  # chunks of a prompt that is handed over need the plain cache
        flags["--disable-radix-cache"] = True
    return flags


def _sizes(run: ServingRun, plan: ServingPlan) -> list[int]:
    """Batches that programs are compiled for: the engine's sizes below the most sequences, and those."""
    sizes = [size for size, _ in run.engine.host.graph_sizes if size < run.seqs]
    return [size * plan.data for size in (*sizes, run.seqs)]


def _role(run: ServingRun) -> dict[str, Any]:
    if not run.role:
        return {}
    where = "http://" + address("bootstrap", 0, BOOTSTRAP)
    return {"--disaggregation-mode": run.role, "--disaggregation-bootstrap-url": where}


def _drafts(run: ServingRun) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Who drafts; the scheduler overlaps only chains of the model's own heads and of EAGLE-3."""
    drafts = run.file.speculation
    if not drafts.drafts:
        return {}, ()
    chain = {
        "--speculative-num-steps": drafts.drafts,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": drafts.drafts + 1,
    }
    if drafts.draft:
        who = {"--speculative-algorithm": "STANDALONE", "--speculative-draft-model-path": hub_id(drafts.draft)}
        return {**who, **chain, "--disable-overlap-schedule": True}, ()
    if has_own_heads(run.fields):
        return {"--speculative-algorithm": "NEXTN", **chain}, ()
    head = f"./{hub_id(run.file.model).rstrip('/').rpartition('/')[2]}-EAGLE3"
    note = f"{head} stands for a trained EAGLE-3 head of the model: put its path or repository there."
    who = {"--speculative-algorithm": "EAGLE3", "--speculative-draft-model-path": head, "--attention-backend": "fa"}
    return {**who, **chain}, (note,)


def check(run: ServingRun, whole: ServingRun, plan: ServingPlan) -> None:
    """What sgl-jax refuses beyond the rules of the engine's row."""
    page, budget = run.engine.memory.page, run.engine.scheduling.max_tokens
    if budget % page:
        raise TERMS.refused("whole_pages", page=page, budget=budget, near=-(-budget // page) * page)
    if run.role and plan.data > 1:
        raise TERMS.refused("pools_without_data", plan=plan)
    if run.role and whole.file.speculation.drafts:
        raise Infeasible("sgl-jax does not draft where caches are handed over; leave --drafts or --prefill-on out.")
