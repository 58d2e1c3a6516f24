"""sgl-jax, SGLang on TPUs: `python -m sgl_jax.launch_server`.

Its `--tp-size` counts all JAX devices, of which a TPU7x chip is two; `--dp-size` of them are replicas of the attention,
and `--ep-size` deals out the experts. `--max-running-requests` is that of the whole server while a chunk of prompts is
that of one replica. A step is one compiled program for each of a few batch sizes (`--precompile-bs-paddings`), and
weights are quantised on loading as a YAML that comes with it says.

Pools that prefill and decode find each other through a bootstrap server, behind a router of its own; both come with it.
"""

from dataclasses import dataclass

from dragonscale.exports.engines.schemes import checkpoint_for
from dragonscale.exports.engines.sgl_jax.reader import ONLINE
from dragonscale.exports.engines.sglang.writer import BOOTSTRAP, Command, SglServer, router, served
from dragonscale.exports.flags import flag_words
from dragonscale.exports.keys import load_keys
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import Word, address
from dragonscale.exports.written import LaunchProgram, WrittenFiles

TERMS = load_terms("sgl-jax")
ENGINE = "sgl-jax"
PORTS = {"": 30000, "prefill": 30100, "decode": 30200}
COMMAND = Command("sgl_jax.launch_server", ENGINE, PORTS, 5000, "NEXTN")
CACHE = "/tmp/jit_cache"
"""Where compiled programs are kept: without it every start compiles them for minutes."""


@dataclass(frozen=True)
class SglJaxServer(SglServer):
    """A server on TPUs: degrees count devices, and what is dealt over all chips goes on between the devices of each."""

    @property
    def devices(self) -> int:
        return self.world * self.run.slice.chip.devices

    @property
    def dealt(self) -> int:
        return self.plan.expert * (self.run.slice.chip.devices if self.plan.expert == self.world else 1)

    @property
    def cache(self) -> str:
        return "fp8_e4m3" if self.plan.kv == "fp8" else "auto"

    @property
    def sizes(self) -> list[int]:
        """Batches that programs are compiled for: the engine's sizes below the most sequences, and those."""
        sizes = [size for size, _ in self.run.engine.host.graph_sizes if size < self.run.seqs]
        return [size * self.plan.data for size in (*sizes, self.run.seqs)]

    @property
    def bootstrap(self) -> Word:
        return "http://" + address("bootstrap", 0, BOOTSTRAP)


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
    server, page, budget = SglJaxServer(run, whole, found, found.plan), run.engine.memory.page, run.engine.scheduling
    checks = {
        "whole_pages": budget.max_tokens % page,
        "pools_without_data": run.role and found.plan.data > 1,
        "pools_without_drafts": run.role and whole.file.speculation.drafts,
    }
    near = -(-budget.max_tokens // page) * page
    TERMS.refuse(checks, plan=found.plan, page=page, budget=budget.max_tokens, near=near)
    flags, env = TERMS.group("server", server), {"JAX_COMPILATION_CACHE_DIR": CACHE}
    return served(server, COMMAND, list(found.differences), flags, env=env)
