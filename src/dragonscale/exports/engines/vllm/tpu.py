"""vLLM on TPUs (tpu-inference): the same `vllm serve`, with its mesh in `--additional-config` and its switches in the
environment.

Sizes count devices, and a TPU7x chip is two of them. Attention data parallelism is no `--data-parallel-size` (that is
copies of the whole model): `--tensor-parallel-size` is all devices, of which `attn_dp_size` ways split the batch in
attention. Experts are dealt over all devices or sliced. A 16-bit checkpoint of a model that tpu-inference has in JAX is
quantised on loading by rules for Qwix. Over several hosts Ray starts the workers; the first host's script starts Ray's
head and serves, the others join.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.exports.engines.checkpoints import checkpoint_for, engine_import, formats_read, of_chips, pool_read
from dragonscale.exports.engines.vllm import read_vllm, write_vllm
from dragonscale.exports.engines.vllm.write_vllm import EngineFlags
from dragonscale.exports.imported import Given, Imported, Source, slice_given
from dragonscale.exports.keys import ReadFlags, flag_words, load_keys, shell_lines, table_at, truth, whole
from dragonscale.exports.runs import ServingRun, header
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import LEADER, RANK, Word, WrittenFiles, config_file, quoted
from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, parse_target
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.legal import divisible

TERMS, VLLM = load_terms("vllm-tpu"), load_terms("vllm")

ENGINE = "vllm-tpu"
ONLINE = TERMS.by_formats("online")
"""What Qwix makes of 16 bits: the types of weights and of activations."""
IN_JAX = frozenset({"llama", "llama4", "llama4_text", "qwen3", "gemma4", "gemma4_text"})
"""Types of models that tpu-inference has in JAX and quantises on loading (tpu_inference/models/common/model_loader.py).
"""
EVERYWHERE, NOT_ATTENTION = ".*", ".*mlp.*"
"""Modules that a rule is for."""
CONNECTOR = {"kv_connector": "TPUConnector", "kv_connector_module_path": "tpu_inference.distributed.tpu_connector"}
PORTS = {"": 8000, "prefill": 8400, "decode": 9400}
IMAGE = "vllm/vllm-tpu:v{}"
HOST_SCRIPT = "vllm-tpu-host.sh"
RAY_PORT = 6379


def write(run: ServingRun) -> WrittenFiles:
    """The command of a replica; over several hosts in a script that starts Ray before it."""
    own = _replica(run)
    if run.prefill is not None:
        first = _replica(run.prefill)
        files, programs = {**own.files, **first.files}, (*own.programs, *first.programs)
        return replace(own, files=files, programs=programs, notes=(*own.notes, *first.notes, TERMS.say("proxy")))
    several = (run.file.replicas or 1) > 1
    return replace(own, routing=(f"Start {run.file.replicas} such replicas behind a router.",) if several else ())


def _flags(run: ServingRun) -> EngineFlags:
    plan, devices = run.plan, run.slice.chip.devices
    online = ONLINE if str(run.fields.get("model_type", "")) in IN_JAX else {}
    only = write_vllm.only_wide(run)
    checkpoint = checkpoint_for(ENGINE, run.slice.chip, run.model, run.file.model, plan, online, only)
    own = EngineFlags({}, checkpoint, {"MODEL_IMPL_TYPE": "auto"}, list(checkpoint.differences), list(checkpoint.notes))
    # attention splits the batch over devices too where a chip has all heads
    own.plan, ranks, more = (
        checkpoint.plan,
        plan.data * (devices if plan.data > 1 and plan.tensor == 1 else 1),
        dict[str, Any](),
    )
    context = _context(run, own)
    if plan.data > 1:
        more["sharding"] = {"sharding_strategy": {"enable_dp_attention": True, "attn_dp_size": ranks}}
    own.env |= {"NEW_MODEL_DESIGN": "1"} if plan.data > 1 or context else {}
    if checkpoint.online:
        more["quantization"] = _rules(checkpoint.online, checkpoint.wide_attention)
        own.env["MODEL_IMPL_TYPE"] = "flax_nnx"
    handed = {**CONNECTOR, "kv_role": "kv_producer" if run.prefills else "kv_consumer"}
    values = {"devices": plan.tensor * plan.data * devices, "context": context, "more": more, "handed": handed}
    own.flags = TERMS.group("degrees", run, **values)
    plain = replace(checkpoint, online="", wide_attention=False)
    own.flags |= write_vllm.format_flags(run, plain) | write_vllm.limit_flags(run)
    own.flags["--max-num-seqs"] = -(-int(own.flags["--max-num-seqs"]) // (ranks // plan.data))
    own.flags |= TERMS.group("engine", run, drafts=_drafts(run, own), **values)
    return own


def _context(run: ServingRun, own: EngineFlags) -> int:
    """Ranks that split the cache along sequences; tpu-inference takes them from those of `tensor`."""
    ways = run.plan.tensor * run.slice.chip.devices // max(divisible(run.model).kv_heads, default=1)
    if run.plan.spread != "sequence" or run.plan.tensor == 1:
        return 0
    own.plan = own.plan if ways > 1 else replace(own.plan, spread="copy")
    return ways if ways > 1 else 0


def _rules(word: str, wide_attention: bool) -> dict[str, Any]:
    weight, _, act = word.partition(" ")
    rule = {"module_path": NOT_ATTENTION if wide_attention else EVERYWHERE, "weight_qtype": weight}
    return {"qwix": {"rules": [rule | ({"act_qtype": act} if act else {})]}}


def _drafts(run: ServingRun, own: EngineFlags) -> dict[str, Any] | None:
    if run.file.speculation.drafts and run.file.speculation.draft:
        heads = "the checkpoint's own heads" if write_vllm.has_heads(run) else "an EAGLE-3 head"
        raise TERMS.refused("draft_model", heads=heads)
    return write_vllm.drafts(run, own)


def _replica(run: ServingRun) -> WrittenFiles:
    own, table = _flags(run), load_keys("vllm")
    words: list[Word] = ["vllm", "serve", own.checkpoint.word]
    words += flag_words(table, {**own.flags, "--port": PORTS[run.role]})
    files: dict[str, str] = {}
    if run.hosts > 1:
        own.env["TPU_MULTIHOST_BACKEND"] = "ray"
        name = HOST_SCRIPT.replace("host", f"{run.role}-host") if run.role else HOST_SCRIPT
        exports = "".join(f"export {key}={quoted(value)}\n" for key, value in own.env.items())
        top = header(run, f"vLLM on TPUs {table.version}", own.differences)
        script = {"top": top, "exports": exports, "port": RAY_PORT, "command": shell_lines(words)}
        files[name] = TERMS.texts["host_script"].format(**script)
        words = ["bash", config_file(name), RANK, LEADER]
    written = WrittenFiles(files, differences=tuple(own.differences), notes=tuple(own.notes))
    shown = {"env": own.env, "image": IMAGE.format(table.version), "port": PORTS[run.role]}
    return run.served(own.plan, words, written, **shown)


def recognises(source: Source) -> bool:
    return bool(read_vllm.serve_commands(source)) and read_vllm.is_tpu(source)


def read(source: Source, given: Given) -> Imported:
    """The plan of a `vllm serve` command on TPUs."""
    servers = [read_vllm.read_words(words, source) for words in read_vllm.serve_commands(source)]
    flags, pool = read_vllm.pools_of(servers)
    name, checkpoint = read_vllm.model_read(flags, source, given)
    model = load_model(name)
    text = given.slice or source.kept_word("slice")
    chip = parse_target(text)[0] if text else None
    plan, replicas, ratio = _plan(flags, model, checkpoint, chip)
    given = of_chips(given, plan.chips)
    piece = slice_given(source, given, plan.chips)
    limits = read_vllm.limits_read(flags)
    limits["max_seqs"] = _each(limits["max_seqs"], ratio, source, plan)
    notes: list[str] = []
    drafts = read_vllm.drafts_read(flags, source, notes)
    prefill = None if pool is None else _pool(pool, model, checkpoint, piece, source)
    how = (source, given, plan, name, ENGINE, flags, limits)
    said: dict[str, Any] = {"drafts": drafts, "prefill": prefill, "replicas": replicas if replicas > 1 else 0}
    length = flags.values.get("--max-model-len")
    return engine_import(ENGINE, *how, **said, notes=notes, piece=piece, length=length)


def _pool(read: ReadFlags, model: Transformer, checkpoint: str, piece: Slice | None, source: Source) -> dict[str, Any]:
    """The pool that prefills; the shape of its slice is in the header of an export alone."""
    plan, replicas, _ = _plan(read, model, checkpoint, piece.chip if piece is not None else None)
    return pool_read(source, plan, piece, replicas)


def _each(seqs: float | None, ratio: int, source: Source, plan: ServingPlan) -> float | None:
    """Sequences of a chip's devices together, as many as were planned where that is a rounding."""
    if seqs is None or ratio == 1:
        return seqs
    planned = source.kept.get("launch", {}).get("max_seqs") or -(-int(source.kept.get("batch", 0)) // plan.data)
    return planned if -(-planned // ratio) == seqs else seqs * ratio


def _plan(read: ReadFlags, model: Transformer, checkpoint: str, chip: Chip | None) -> tuple[ServingPlan, int, int]:
    """Degrees in chips, replicas, and devices of a chip that have attention ranks of their own."""
    devices = chip.devices if chip is not None else 1
    total, pipe, replicas = (read.whole(f"--{name}-parallel-size") for name in ("tensor", "pipeline", "data"))
    said = table_at(read.take("--additional-config"))
    found = _formats(read, model, checkpoint, chip, said)
    ranks = _attention_ranks(table_at(said, "sharding", "sharding_strategy"), total, model, found["kv"])
    if (total > 1 and total % devices) or total % ranks:
        raise TERMS.wrong("multiple_of_both", total=total, devices=devices, ranks=ranks)
    each = total // ranks
    tensor, data = (each // devices, ranks) if each % devices == 0 else (1, max(ranks * each // devices, 1))
    dealt = bool(read.values.pop("--enable-expert-parallel", False)) and bool(divisible(model).experts)
    spread = "sequence" if read.whole("--decode-context-parallel-size") > 1 else "copy"
    plan = replace(ServingPlan(tensor, data, data * tensor if dealt else 1, pipe=pipe, spread=spread), **found)
    return plan, replicas, max(ranks // data, 1) if data > 1 else 1


def _attention_ranks(strategy: Mapping[str, Any], total: int, model: Transformer, kv: str) -> int:
    """Ranks of attention data parallelism: as said, or as tpu-inference takes them so that no KV head is copied
    (layers/common/sharding.py)."""
    if not truth(strategy.get("enable_dp_attention", False), "enable_dp_attention"):
        return 1
    if size := strategy.get("attn_dp_size"):
        return whole(size, "attn_dp_size", most=total)
    sizes = divisible(model)
    packing = {"fp8": 4}.get(kv, 2) * (2 if any(head == 64 for *_, head in sizes.projected) else 1)
    heads = max(1, 2 * min(sizes.kv_heads, default=1) // packing)
    dealt = whole(strategy.get("expert_parallelism", 1), "expert_parallelism")
    ranks = max(whole(strategy.get("tensor_parallelism", total), "tensor_parallelism") // heads, 1)
    return min(ranks * dealt, total)


def _formats(
    read: ReadFlags, model: Transformer, checkpoint: str, chip: Chip | None, said: Mapping[str, Any]
) -> dict[str, str]:
    rules = table_at(said, "quantization", "qwix").get("rules")
    first = table_at(rules[0]) if isinstance(rules, list) and rules else {}
    word = " ".join(str(one) for one in (first.get("weight_qtype"), first.get("act_qtype")) if one)
    read.values.pop("--quantization", None)
    word, wide = word if word in ONLINE.values() else "", first.get("module_path") == NOT_ATTENTION
    found = formats_read(ENGINE, chip, model, checkpoint, word, ONLINE, wide)
    dtype = {long: short for short, long in VLLM.tables["dtypes"].items()}.get(str(read.values.pop("--dtype", "")), "")
    return {**read_vllm.cast(found, dtype), **read_vllm.cache(read, found, dtype)}
