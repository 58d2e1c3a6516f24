"""vLLM on GPUs: `vllm serve`, one process for each host of a replica.

A replica over several hosts is the same command on each (`--nnodes`, `--node-rank`, `--master-addr`); hosts other than
the first have no API server (`--headless`). Pools that prefill and decode apart are two commands that hand caches over
by NIXL, and a router in front of them.
"""

from dataclasses import replace

from dragonscale.exports.engines.vllm.flags import EngineFlags, engine_flags
from dragonscale.exports.flags import flag_words
from dragonscale.exports.keys import load_keys
from dragonscale.exports.runs import ServingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import HOSTS, LEADER, RANK, address
from dragonscale.exports.written import LaunchProgram, WrittenFiles

TERMS = load_terms("vllm")

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
    own = engine_flags(run)
    as_run = own.plan if own.plan != run.file.plan else None
    return WrittenFiles({}, (program(run, own),), tuple(own.differences), as_run, tuple(own.notes))


def program(run: ServingRun, own: EngineFlags) -> LaunchProgram:
    """The command of one replica."""
    table = load_keys("vllm")
    hosts, chips = hosts_of(run.slice)
    flags = {**own.flags, "--port": PORTS[run.role]}
    if hosts > 1:
        flags |= {"--nnodes": HOSTS, "--node-rank": RANK, "--master-addr": LEADER}
    env = dict(own.env)
    if run.role:
        env["VLLM_NIXL_SIDE_CHANNEL_PORT"] = NIXL_PORT
    words = ("vllm", "serve", own.checkpoint.word, *flag_words(table, flags))
    others = tuple(flag_words(table, {"--headless": True})) if hosts > 1 else ()
    shown = {"copies": run.file.replicas or 1, "image": IMAGE.format(table.version), "port": PORTS[run.role]}
    return LaunchProgram(run.role or "serve", words, hosts, chips, env=env, others=others, **shown)


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
