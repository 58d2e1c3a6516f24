"""sgl-jax, SGLang on TPUs: `python -m sgl_jax.launch_server`.

Its `--tp-size` counts all JAX devices, of which a TPU7x chip is two; `--dp-size` of them are replicas of the attention,
and `--ep-size` deals out the experts. `--max-running-requests` is that of the whole server while a chunk of prompts is
that of one replica. A step is one compiled program for each of a few batch sizes (`--precompile-bs-paddings`), and
weights are quantised on loading as a YAML that comes with it says.

Pools that prefill and decode find each other through a bootstrap server, behind a router of its own; both come with it.
"""

from typing import Any

from dragonscale.exports.engines.schemes import checkpoint_for
from dragonscale.exports.engines.sgl_jax.read_sgl_jax import ONLINE
from dragonscale.exports.engines.sglang.write_sglang import BOOTSTRAP, SglCommand, SglServer, router, served
from dragonscale.exports.flags import flag_words
from dragonscale.exports.keys import load_keys
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import address
from dragonscale.exports.written import LaunchProgram, WrittenFiles

TERMS = load_terms("sgl-jax")
ENGINE = "sgl-jax"
PORTS = {"": 30000, "prefill": 30100, "decode": 30200}
COMMAND = SglCommand("sgl_jax.launch_server", ENGINE, PORTS, 5000, "NEXTN")
CACHE = "/tmp/jit_cache"
"""Where compiled programs are kept: without it every start compiles them for minutes."""


def write(run: ServingRun) -> WrittenFiles:
    """The command of a replica, or those of two pools, of the server where they meet, and of the router before them."""
    own = _server(run, run)
    if run.prefill is None:
        return own
    flags = flag_words(load_keys(ENGINE), {"--host": "0.0.0.0", "--port": BOOTSTRAP})
    words = ("python", "-m", "sgl_jax.srt.disaggregation.run_bootstrap", *flags)
    meeting = LaunchProgram("bootstrap", words, 1, 0, port=BOOTSTRAP)
    lead = flag_words(load_keys("sgl-jax-router"), {"--pd-disaggregation": True, "--mini-lb": True})
    lead = ["sgl_jax.srt.disaggregation.launch_router", *lead]
    front = router(run, run.prefill, "sgl-jax-router", lead, PORTS)
    return own.with_pool(_server(run.prefill, run), (meeting, front), (TERMS.say("server_names"),))


def _server(run: ServingRun, whole: ServingRun) -> WrittenFiles:
    online = {} if run.file.plan.attention else ONLINE
    found = checkpoint_for(ENGINE, run.slice.chip, run.model, run.file.model, run.file.plan, online)
    server, plan, page = SglServer(run, whole, found, found.plan), found.plan, run.engine.memory.page
    checks = {
        "whole_pages": run.budget % page,
        "pools_without_data": run.role and plan.data > 1,
        "pools_without_drafts": run.role and whole.file.speculation.drafts,
    }
    TERMS.refuse(checks, plan=plan, page=page, budget=run.budget, near=-(-run.budget // page) * page)
    # degrees count devices; what is dealt over all chips goes on between the devices of each
    each, sizes = run.slice.chip.devices, [size for size, _ in run.engine.host.graph_sizes if size < run.seqs]
    settings: dict[str, Any] = {
        "devices": server.world * each,
        "dealt": plan.expert * (each if plan.expert == server.world else 1),
        "cache": "fp8_e4m3" if plan.kv == "fp8" else "auto",
        "sizes": [size * plan.data for size in (*sizes, run.seqs)],  # batches that programs are compiled for
        "bootstrap": "http://" + address("bootstrap", 0, BOOTSTRAP),
    }
    return served(server, COMMAND, settings, list(found.differences), env={"JAX_COMPILATION_CACHE_DIR": CACHE})
