"""sgl-jax, SGLang on TPUs: `python -m sgl_jax.launch_server`, in a script or pasted; two commands of which one
prefills and one decodes are pools.

Its `--tp-size` counts all JAX devices, of which a TPU7x chip is two; `--dp-size` of them are replicas of the attention,
and `--ep-size` deals out the experts. `--max-running-requests` is that of the whole server while a chunk of prompts is
that of one replica. A step is one compiled program for each of a few batch sizes (`--precompile-bs-paddings`), and
weights are quantised on loading as a YAML that comes with it says.

Pools that prefill and decode find each other through a bootstrap server, behind a router of its own; both come with it.
"""

from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.engines import checkpoints
from dragonscale.exports.engines.sglang.read_sglang import MOST_COUNT, Servers, drafts_read, limits_read, spelt_out
from dragonscale.exports.engines.sglang.write_sglang import BOOTSTRAP, SglCommand, SglServer, router, served
from dragonscale.exports.imported import Given, Imported, Source, slice_given
from dragonscale.exports.keys import ReadFlags, flag_words, load_keys, read_flags
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import LaunchProgram, WrittenFiles, address
from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, load_chip, parse_target
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.legal import divisible

TERMS = load_terms("sgl-jax")

ONLINE = TERMS.by_formats("online")
"""The YAML that quantises a 16-bit checkpoint on loading, by weights and matmuls (srt/utils/quantization/configs)."""
KINDS = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bf16": "bf16"}


def recognises(source: Source) -> bool:
    return source.command("sgl_jax.launch_server") is not None


def read(source: Source, given: Given) -> Imported:
    """The plan of a server, or of two pools of them."""
    table = load_keys("sgl-jax")
    commands = source.started("sgl_jax.launch_server")
    flags = [read_flags(table, spelt_out(table, words), MOST_COUNT) for words in commands]
    servers, notes = Servers.of(flags), list[str]()
    main, pool = servers.main, servers.pool
    word = str(main.take("--model-path", ""))
    name = servers.model(word, source, given)
    model, chip = load_model(name), _chip(source, given)
    plan = replace(_degrees(main, model, chip), **_formats(main, chip, model, word))
    given = checkpoints.of_chips(given, plan.chips)
    piece, prefill, replicas = slice_given(source, given, plan.chips), None, 0
    if pool is not None:
        prefill = _pool(pool, source, model, piece, servers.copies("prefill"))
        replicas = int(source.kept.get("replicas", 0) or servers.copies("decode"))
    beyond, length = "what it answers beyond that is not to be relied on", main.values.get("--context-length")
    limits, drafts = limits_read(main, plan, 1), drafts_read(main, source, notes)
    said: dict[str, Any] = {"drafts": drafts, "prefill": prefill, "replicas": replicas, "role": servers.role}
    how = (source, given, plan, name, "sgl-jax", main, limits)
    later = checkpoints.beyond_context("--context-length", length, model, beyond)
    said |= {"notes": notes, "later": later, "further": load_terms("sglang").lists["harmless"]}
    return checkpoints.engine_import("sgl-jax", *how, **said, piece=piece, length=length)


def _chip(source: Source, given: Given) -> Chip:
    """The chip, whose devices `--tp-size` counts; the one of its quick start where none is said."""
    text = given.slice or source.kept_word("slice")
    return parse_target(text)[0] if text else load_chip("v6e")


def _degrees(read: ReadFlags, model: Transformer, chip: Chip) -> ServingPlan:
    degrees = ("--tensor-parallel-size", "--data-parallel-size", "--ep-size")
    devices, data, dealt = (read.whole(name) for name in degrees)
    if devices % chip.devices:
        raise TERMS.wrong("devices_of_chips", devices=devices, chip=chip)
    world = devices // chip.devices
    if world % data:
        raise InputError(f"--dp-size is {data}, which does not divide the {world} chips of --tp-size {devices}.")
    if devices % dealt:
        raise TERMS.wrong("dealt_over_devices", dealt=dealt, devices=devices)
    ways = world if dealt == devices else min(dealt, world)
    return ServingPlan(world // data, data, ways if divisible(model).experts else 1)


def _formats(read: ReadFlags, chip: Chip, model: Transformer, word: str) -> dict[str, str]:
    config = str(read.take("--quantization-config-path", "")).rpartition("/")[2]
    if config and config not in ONLINE.values():  # one made for a model: by the format that its name begins with
        config = "int8_w8a8.yaml" if config.startswith("int8") else "fp8_w8a8.yaml" if config.startswith("fp8") else ""
    found = checkpoints.formats_read("sgl-jax", chip, model, word, config, ONLINE, False)
    read.take("--dtype")
    cache = str(read.take("--kv-cache-dtype", "auto"))
    if cache != "auto":
        if cache not in KINDS:
            raise InputError(f"--kv-cache-dtype is {shorten(cache)}; sgl-jax has auto, {', '.join(KINDS)}.")
        found["kv"] = KINDS[cache]
    return found


def _pool(read: ReadFlags, source: Source, model: Transformer, piece: Slice | None, copies: int) -> dict[str, Any]:
    """The servers that prefill."""
    chip = piece.chip if piece is not None else load_chip("v6e")
    plan = replace(_degrees(read, model, chip), **_formats(read, chip, model, str(read.take("--model-path", ""))))
    return checkpoints.pool_read(source, plan, piece, copies)


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
    found = checkpoints.checkpoint_for(ENGINE, run.slice.chip, run.model, run.file.model, run.file.plan, online)
    server, plan, page = SglServer(run, whole, found, found.plan), found.plan, run.engine.memory.page
    drafts = whole.file.speculation.drafts
    TERMS.refuse(run, plan=plan, page=page, budget=run.budget, near=-(-run.budget // page) * page, drafts=drafts)
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
