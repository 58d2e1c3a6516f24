"""vLLM on GPUs: `vllm serve`, one process for each host of a replica.

A replica over several hosts is the same command on each (`--nnodes`, `--node-rank`, `--master-addr`); hosts other than
the first have no API server (`--headless`). Pools that prefill and decode apart are two commands that hand caches over
by NIXL, and a router in front of them.
"""

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
    own = engine_flags(run)
    programs, notes, differences = [program(run, own)], list(own.notes), list(own.differences)
    routing: tuple[str, ...] = ()
    if run.prefill is not None:
        first = engine_flags(run.prefill)
        programs += [program(run.prefill, first), router(run)]
        notes += [one for one in first.notes if one not in notes]
        differences += [one for one in first.differences if one not in differences]
        routing = (TERMS.say("nixl_host"),)
    elif (run.file.replicas or 1) > 1:
        routing = (f"Start {run.file.replicas} such replicas behind a router (pip install vllm-router).",)
    as_run = own.plan if own.plan != run.file.plan else None
    return WrittenFiles({}, tuple(programs), tuple(differences), as_run, tuple(notes), routing)


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
    return LaunchProgram(
        run.role or "serve",
        ("vllm", "serve", own.checkpoint.word, *flag_words(table, flags)),
        hosts,
        chips,
        copies=run.file.replicas or 1,
        env=env,
        others=tuple(flag_words(table, {"--headless": True})) if hosts > 1 else (),
        image=IMAGE.format(table.version),
        port=PORTS[run.role],
    )


def router(run: ServingRun) -> LaunchProgram:
    """What sends requests to a prefill replica and then to one that decodes."""
    assert run.prefill is not None
    words = ["vllm-router", *flag_words(load_keys("vllm-router"), {"--vllm-pd-disaggregation": True})]
    for role, pool in (("prefill", run.prefill), ("decode", run)):
        for number in range(pool.file.replicas or 1):
            words += flag_words(load_keys("vllm-router"), {f"--{role}": "http://" + address(role, number, PORTS[role])})
    words += flag_words(load_keys("vllm-router"), {"--host": "0.0.0.0", "--port": ROUTER_PORT})
    return LaunchProgram(
        "router", tuple(words), 1, 0, image="vllm/vllm-router:v" + load_keys("vllm-router").version, port=ROUTER_PORT
    )
