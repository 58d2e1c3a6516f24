"""MaxText: a YAML file over its `base.yml`, and one process on each host that trains by it.

A plan's axes lie on MaxText's mesh axes, its recomputation is a policy of named tensors (`maxtext_words`), and the
model is one of MaxText's configs or a decoder with sizes. What remains is arithmetic: MaxText counts the
batch by device and forward pass (`per_device_batch_size`, a fraction where several devices share a sequence). Without a
pipeline the microbatches of a step are `gradient_accumulation_steps`; with one they are `num_pipeline_microbatches` of
a single pass.

ZeRO in MaxText: on the `fsdp` axis weights are split too (3); ZeRO-1 is `shard_optimizer_over_data` over the `data`
axis, which does not go with an `fsdp` axis. Dense weights always lie on the `expert` and `context` axes too, as its
rules of sharding say.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.exports.keys import load_keys
from dragonscale.exports.runs import TrainingRun, comments, header
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.maxtext import maxtext_words as maxtext
from dragonscale.exports.written import HOSTS, LEADER, RANK, PlanDifference, Word, WrittenFiles, config_file, yaml_text
from dragonscale.training.plan.legality import family
from dragonscale.training.plan.plan import Plan

TERMS = load_terms("maxtext")

FILE = "maxtext.yml"
MODULE = "maxtext.trainers.pre_train.train"


def write(asked: TrainingRun) -> WrittenFiles:
    """The YAML file, and the command of a host."""
    plan, differences = as_run(asked)
    run, table, kind = asked.running(plan), load_keys("maxtext"), family(asked.slice.chip)
    sections = _sections(run)
    for keys in sections.values():
        for name, value in keys.items():
            table.check(name, value)
    between, host = maxtext.slices_of(run.slice) > 1, plan.remat == "offload" or plan.offload != "none"
    env = maxtext.compiler_flags(kind, run.slice.chip.name, between, maxtext.experts_of(run.fields) > 0, host)
    words: tuple[Word, ...] = ("python3", "-m", MODULE, config_file(FILE))
    if kind != "tpu" and run.hosts > 1:  # on TPUs JAX finds the other hosts by itself
        meeting = ("JAX_COORDINATOR_IP=" + LEADER, "JAX_COORDINATOR_PORT=6002")
        words = ("env", *meeting, "NNODES=" + HOSTS, "NODE_RANK=" + RANK, *words)
    notes = TERMS.remark_on(run, MODULE=MODULE)
    written = WrittenFiles({FILE: _text(asked, sections, differences)}, differences=differences, notes=notes)
    return asked.trained(plan, words, written, env=env)


def as_run(run: TrainingRun) -> tuple[Plan, tuple[PlanDifference, ...]]:
    """The plan that MaxText runs, and in what it differs from the one given."""
    plan, found = run.plan, []
    if plan.tensor > 1 and not plan.sequence:
        found.append(TERMS.difference("sequence"))
        plan = replace(plan, sequence=True)
    if plan.pipe > 1 and plan.schedule == "interleaved" and plan.virtual == 1:
        plan = replace(plan, schedule="gpipe")  # a circular pipeline of one repeat
    plan, more = _sharding(plan)
    found += more
    if plan.optimizer == "adam-bf16":
        found.append(TERMS.difference("optimizer"))
    two = maxtext.devices_per_chip(run.slice.chip)
    if plan.microbatch % two:
        if run.file.batch % (plan.replicas * plan.microbatch * two * plan.pipe):
            multiple = plan.replicas * plan.microbatch * two * plan.pipe
            raise TERMS.refused("sequences_of_devices", run=run, two=two, plan=plan, multiple=multiple)
        found.append(TERMS.difference("microbatch", plan=plan, sequences=plan.microbatch * two, two=two))
        plan = replace(plan, microbatch=plan.microbatch * two)
    return plan, tuple(found)


def _sharding(plan: Plan) -> tuple[Plan, list[PlanDifference]]:
    inner = [axis for axis in ("expert", "context") if getattr(plan, axis) > 1]
    apart = plan.data * plan.fsdp
    if inner and (plan.zero == 0 or (plan.zero < 3 and plan.fsdp == 1)):
        instead = f"dense weights are split over {' and '.join(inner)}"
        found = [PlanDifference(f"zero={plan.zero}", instead, "its rules of sharding put them there", "zero")]
        return replace(plan, zero=3, data=apart, fsdp=1), found
    if plan.zero == 0:
        return replace(plan, data=apart, fsdp=1), []
    found = []
    if plan.zero == 1 and plan.fsdp > 1:
        if plan.data > 1:
            found.append(TERMS.difference("data", plan=plan, apart=apart))
        plan = replace(plan, data=1, fsdp=apart)
    if plan.zero == 1 and inner:
        found.append(TERMS.difference("zero_1", axes=" and ".join(inner)))
    return plan, found


def _sections(run: TrainingRun) -> dict[str, dict[str, Any]]:
    """The keys, by what they are about."""
    plan, kind = run.plan, family(run.slice.chip)
    own = maxtext.model_keys(run.file.model, run.fields)
    experts, latent = maxtext.experts_of(run.fields) > 0, bool(run.fields.get("kv_lora_rank"))
    _check(run, own)
    # on MaxText's axes replicas whose weights are whole lie on data
    axes = replace(plan, data=plan.data * plan.fsdp, fsdp=1) if plan.zero < 3 else plan
    said, steps = run.said, run.all_steps
    warming = {"warms": "warmup" in said and steps, "warmup": min(said.get("warmup", 0) / (steps or 1), 1.0)}
    name = f"{run.model.name.replace('/', '-')}-{str(run.slice).replace(':', '-').replace('*', 'x')}"
    return {
        "Model": {"base_config": "base.yml", **own, "max_target_length": run.file.seq},
        "Hardware and mesh: the ici_ axes are inside a slice, the dcn_ axes between slices": {
            "hardware": "tpu" if kind == "tpu" else "gpu",
            **maxtext.mesh_keys(axes, run.slice),
            **({"allow_split_physical_axes": True} if kind == "tpu" else {}),
            **({"shard_optimizer_over_data": True} if plan.zero == 1 and plan.fsdp > 1 else {}),
        },
        "Batch": _batch(run),
        **({"Pipeline": _pipeline(run, own)} if plan.pipe > 1 else {}),
        "Attention": _attention(run, own, kind),
        **({"Experts": TERMS.group("dropping" if run.file.capacity else "dropless", run)} if experts else {}),
        "Numbers": {
            **TERMS.group("numbers", run),
            **maxtext.quantization_keys(plan.dtype, kind, run.accumulation if plan.pipe == 1 else 1),
        },
        "What is recomputed": maxtext.remat_keys(plan.remat, experts, latent),
        "Optimizer": TERMS.group("optimizer", run, **warming),
        "Run": {"run_name": name, **TERMS.group("run", run, period=int(said.get("every") or 1000))},
    }


def _check(run: TrainingRun, own: Mapping[str, Any]) -> None:
    """What MaxText's own check of a config refuses, beyond what its stack's rules say."""
    ways, fields, named = run.plan.context * run.plan.tensor, run.fields, str(own["model_name"])
    heads = int(fields.get("num_key_value_heads") or fields.get("num_attention_heads") or 1)
    latent = bool(fields.get("kv_lora_rank"))
    why = "latent attention" if latent else f"{heads} KV heads, which context x tensor = {ways} does not divide"
    values = {
        "tpu": family(run.slice.chip) == "tpu",
        "known_to_muon": named.startswith(maxtext.MUON) or own.get("decoder_block") in maxtext.MUON_DECODERS,
        "pipelines": maxtext.pipelines(own),
        "alike": maxtext.alike(own),
        "uneven_heads": latent or heads % ways,
        "compressed": named.startswith("deepseek4"),
        "sparse": named.startswith(("deepseek3.2", "deepseek4")),
    }
    TERMS.refuse(run, name=run.model.name, why=why, **values)


def _batch(run: TrainingRun) -> dict[str, Any]:
    plan = run.plan
    passes = 1 if plan.pipe > 1 else run.accumulation
    devices = run.slice.chips * maxtext.devices_per_chip(run.slice.chip)
    each = run.file.batch / passes / devices
    return {"per_device_batch_size": int(each) if each == int(each) else each, "gradient_accumulation_steps": passes}


def _pipeline(run: TrainingRun, own: Mapping[str, Any]) -> dict[str, Any]:
    plan, layers = run.plan, run.model.n_layers
    merged = maxtext.merged_layers(own)
    each, rest = divmod(layers, plan.pipe * plan.virtual * merged)
    if rest:
        raise TERMS.refused("stages_times_repeats", merged=merged, run=run, layers=layers, plan=plan)
    return TERMS.group("pipeline", run, each=each)


def _attention(run: TrainingRun, own: Mapping[str, Any], kind: str) -> dict[str, Any]:
    plan = run.plan
    table: dict[str, Any] = {"attention": "flash" if kind == "tpu" else "cudnn_flash_te"}
    sparse = str(own["model_name"]).startswith(("deepseek3.2", "deepseek4"))
    if plan.context > 1:
        by = TERMS.tables["strategies"][plan.context_by]
        recurrent = str(own["model_name"]).startswith(("qwen3-next", "qwen3.5"))
        odd = plan.context_by == "ring" and plan.context % 2 == 1
        balanced = plan.context_by != "ulysses" and not recurrent and not odd
        table |= {"context_parallel_strategy": by, "context_parallel_load_balance": balanced}
        if kind != "tpu" or run.fields.get("kv_lora_rank"):
            table["packing"] = False  # documents of a packed sequence are not told apart over context
    if (plan.context > 1 and plan.context_by != "gather" and kind == "tpu") or sparse:
        table["use_tokamax_splash"] = True
    if kind != "tpu" and table.get("packing", True):
        table["max_segments_per_seq"] = 32
    return table


def topology(run: TrainingRun) -> str:
    """MaxText's name of a TPU slice, for a compile without the chips; empty where it has none."""
    piece = run.slice
    if family(piece.chip) != "tpu":
        return ""
    count = piece.chips // piece.pods * (1 if piece.chip.name in ("v5e", "v6e") else 2)
    name = f"{piece.chip.name}-{count}"
    return name if name in load_keys("maxtext").keys["compile_topology"].choices else ""


def _text(run: TrainingRun, sections: Mapping[str, Mapping[str, Any]], differences: tuple[PlanDifference, ...]) -> str:
    title = f"MaxText {load_keys('maxtext').version}"
    lines = [f"Global batch: {run.file.batch} sequences of {run.file.seq} tokens a step."]
    if name := topology(run):
        lines += [
            "To see whether it compiles and fits, without the chips:",
            TERMS.say("compile", MODULE=MODULE, FILE=FILE, name=name, pods=run.slice.pods),
        ]
    text = header(run, title, differences) + comments(lines)
    for about, keys in sections.items():
        text += f"\n# {about}\n" + yaml_text(keys)
    if not run.file.run.get("checkpoints") and run.hosts > 1:
        # orbax writes a checkpoint's parts from every host into one folder
        key = "base_output_directory: "
        remark = "A folder that all hosts see (gs://bucket/path): change it, or checkpoints are lost."
        text = text.replace(f"\n{key}", f"\n# {remark}\n{key}", 1)
    return text
