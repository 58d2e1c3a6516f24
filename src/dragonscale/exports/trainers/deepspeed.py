"""DeepSpeed: a config in JSON, and the Hugging Face Trainer that trains by it.

DeepSpeed is a library: what it shards, offloads and how it splits a batch is said by `ds_config.json`; the model and
its sequences are the program's. The program here is the Trainer's own example for causal language models, `run_clm.py`
(examples/pytorch/language-modeling of transformers), whose arguments must agree with the config. ZeRO's state is split
over all data-parallel ranks: replicas of groups of shards (MiCS) were removed in DeepSpeed 0.19. Experts are spread by
AutoEP, tensors by AutoTP, sequences by Ulysses, which accelerate sets up. A pipeline is a model written as a
`PipelineModule`, which no config can say.

Read is a `ds_config.json` alone, or `deepspeed … script.py --deepspeed ds_config.json …`. Programs that call DeepSpeed
have arguments of their own; those that most of them share (the Trainer's, and a few spellings of the length of a
sequence and of the model's name) are read. `"auto"` in a config stands for the Trainer's argument of that meaning.

>>> flags_of(["train.py", "--bf16", "--max_seq_len", "512", "--deepspeed=ds.json"])
{'bf16': 'true', 'max_seq_len': '512', 'deepspeed': 'ds.json'}
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.imported import Given, Imported, Source, slice_counted, training_file
from dragonscale.exports.keys import KeyTable, dotted, flag_words, load_keys, options, table_at, whole
from dragonscale.exports.model_names import hub_id, is_changed, model_of_sizes, preset_named
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.shell import ShellCommand, documents
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import PlanDifference, Word, WrittenFiles, config_file
from dragonscale.models.assumed import read_asked
from dragonscale.models.catalogue import is_preset
from dragonscale.training.plan.plan import Plan

TERMS = load_terms("deepspeed")

_CONFIGS = ("deepspeed", "deepspeed_config", "deepspeed-config", "ds_config", "deepspeed_config_file", "ds_config_path")
_LENGTHS = TERMS.lists["lengths"]
_NAMES = ("model_name_or_path", "config_name", "model_name", "model", "model_id", "base_model")
_OWN = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"})
_UNPLANNED = TERMS.lists["unplanned"]
_CHAT = "DeepSpeed-Chat"
"""Marks a config that its scripts make of their own flags (`--zero_stage`, `--dtype`)."""


def flags_of(words: Sequence[str]) -> dict[str, str]:
    """The flags of any program, by name without dashes; one without a value is true."""
    return {name: values[0] if values and values[0] else "true" for name, values in options(words)}


def _command(source: Source) -> ShellCommand | None:
    for command in source.commands:
        if command.launcher == "deepspeed":
            return command
        given = flags_of(command.words)
        if any(given.get(name, "").endswith(".json") for name in _CONFIGS):
            return command
    return None


def recognises(source: Source) -> bool:
    table = source.table
    if table is None:
        return _command(source) is not None
    return bool(_OWN & set(table)) and not {"compute_environment", "distributed_type"} & set(table)


def read(source: Source, given: Given) -> Imported:
    """The plan of a config or a command."""
    table = load_keys("deepspeed")
    command = None if source.table is not None else _command(source)
    flags = flags_of(command.words) if command is not None else {}
    tuned = [name for name, value in flags.items() if name.startswith(_ADAPTERS) and value not in ("false", "0", "no")]
    kind = next((flag for flag in TERMS.tables["chat_stages"] if flag in flags), "")
    if kind:
        raise TERMS.wrong("chat_stage", source=source, kind=TERMS.tables["chat_stages"][kind], flag=kind)
    if tuned:
        raise TERMS.wrong("adapters", source=source, names=", ".join(f"--{name}" for name in tuned))
    config = dict(source.table or {}) if command is None else _config_of(source, command, flags)
    world = command.processes if command is not None else 0
    piece = slice_counted(source, given, world)
    chips = piece.chips if piece is not None else world
    if not chips:
        raise source.needs("how many GPUs there are", "the slice by --on h100:8")
    if world and chips != world:
        raise TERMS.wrong("processes", source=source, world=world, piece=piece, chips=chips)
    model = given.model or _model(source, flags)
    env = command.env if command is not None else {}
    plan, batch = plan_of(config, flags, env, chips)
    seq = next((whole(flags[name], name) for name in _LENGTHS if name in flags), 0)
    steps = whole(flags["max_steps"], "--max_steps") if number_or_zero(flags.get("max_steps", 0)) > 0 else 0
    stack = source.kept_word("stack") or "deepspeed"
    file = training_file(source, given.on(piece), plan, batch, seq, model, stack, steps)
    chat = bool(config.pop(_CHAT, False))
    planned = "zero_optimization.offload_param" if plan.offload == "parameters" else ""
    unplanned = [name for name in _unplanned(config, flags) if not planned or not name.startswith(planned)]
    unknown = [name for name, _ in dotted(config, TERMS.lists["opaque"]) if not _known(table, name)]
    ignored = [f"--{name}" for name in flags if name not in (*_CONFIGS, *_LENGTHS, *_NAMES, *_READ)]
    notes = [] if model else ["The config does not say the model; give it by --model."]
    said = dtype_of(config, flags)[1]
    if chat:
        said = "" if "dtype" in flags else TERMS.say("chat_dtype", plan=plan)
    notes += [said] if said else []
    hosted = "zero_optimization.offload_param" in unplanned
    notes += TERMS.notes({"mics": "mics_shard_size" in table_at(config, "zero_optimization"), "hosted": hosted})
    return Imported("deepspeed", table.version, file, tuple(notes), tuple(ignored), tuple(unplanned), tuple(unknown))


_READ = TERMS.lists["read"]
_ADAPTERS = tuple(TERMS.lists["adapters"])


def _config_of(source: Source, command: ShellCommand, flags: Mapping[str, str]) -> dict[str, Any]:
    """The config that a command names: beside it, or written by the script itself."""
    name = next((flags[one] for one in _CONFIGS if flags.get(one, "true") != "true"), "")
    found = source.beside(name)
    if found is not None and found.table is not None:
        return dict(found.table)
    for _, body in documents(source.text):
        text = re.sub(r"\$\{?(\w+)\}?", lambda match: command.env.get(match[1], '"auto"'), body)
        try:
            table = json.loads(text)
        except ValueError:
            continue
        if isinstance(table, dict) and _OWN & set(table):
            return table
    if name and "zero_stage" not in flags:
        raise TERMS.wrong("config_missing", source=source, name=name)
    stage = {"stage": stage_of(flags.get("zero_stage", "0") or 0)}
    if "zero_stage" in flags and not {"bf16", "fp16"} & set(flags):
        kind = {"bfloat16": "bf16", "bf16": "bf16"}.get(flags.get("dtype", "fp16"), "fp16")
        return {_CHAT: True, "zero_optimization": stage, kind: {"enabled": True}}
    return {"zero_optimization": stage, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}


def _model(source: Source, flags: Mapping[str, str]) -> str:
    kept = source.kept_word("model")
    for name in _NAMES:
        if name in flags:
            found = source.beside(flags[name]) if flags[name].endswith(".json") else None
            if found is not None and found.table is not None:
                made = model_of_sizes(found.table, read_asked(kept).text)
                return kept if kept and made.partition("?")[:2] == kept.partition("?")[:2] else made
            own = preset_named(flags[name]) if is_preset(flags[name]) else flags[name]
            return kept if kept and hub_id(kept) == flags[name] else own
    return kept


def _unplanned(config: Mapping[str, Any], flags: Mapping[str, str]) -> list[str]:
    zero = table_at(config, "zero_optimization")
    heavy = [name for name in _UNPLANNED if zero.get(name) not in (None, False, 1, {})]
    found = [f"zero_optimization.{name}" for name in heavy if table_at(zero, name).get("device") != "none"]
    kind = str(table_at(config, "optimizer").get("type", "adamw")).lower()
    found += [f"optimizer.type={kind}"] if kind not in ("adam", "adamw", "muon", "sgd") else []
    bf16 = table_at(config, "bf16")
    found += [f"bf16.{name}" for name in TERMS.lists["unplanned_bf16"] if is_on(bf16.get(name))]
    given = [name for name in TERMS.lists["unplanned_flags"] if name in flags]
    return found + [f"--{name}" for name in given if is_on(flags[name]) or number_or_zero(flags[name]) > 1]


_SECTIONS = TERMS.lists["sections"]


def _known(table: KeyTable, name: str) -> bool:
    """Whether DeepSpeed has a name; parts of sections that are not in the table are taken as they are."""
    if table.known(name) is not None or name == "zero_optimization.mics_shard_size":
        return True
    head = name.partition(".")[0]
    return head != name and head not in _SECTIONS


def plan_of(
    config: Mapping[str, Any], flags: Mapping[str, str], env: Mapping[str, str], chips: int
) -> tuple[Plan, int]:
    """The plan, and the batch in sequences."""
    zero = table_at(config, "zero_optimization")
    stage = stage_of(zero.get("stage", 0))
    # 0 is DeepSpeed's word for no tensor parallelism
    tensor = max(whole(table_at(config, "tensor_parallel").get("autotp_size", 1), "tensor_parallel.autotp_size", 0), 1)
    ways = env.get("PARALLELISM_CONFIG_SP_SIZE") or config.get("sequence_parallel_size", 1)
    context = whole(ways, "sequence_parallel_size")
    own = table_at(config, "expert_parallel")
    spread = whole(own.get("autoep_size", 1), "expert_parallel.autoep_size") if own.get("enabled") else 1
    expert = spread // math.gcd(spread, tensor)
    ranks, rest = divmod(chips, tensor * context)
    if rest or ranks % expert:
        raise TERMS.wrong("ranks", chips=chips, tensor=tensor, context=context, spread=spread)
    batch, micro = _batch(config, flags, ranks)
    shards = _shards(zero, ranks, expert)
    optimizer = _is_hosted(zero, "offload_optimizer") or is_on(zero.get("cpu_offload"))
    parameters = stage == 3 and optimizer and _is_hosted(zero, "offload_param")
    offload = "none"
    if optimizer:
        offload = "parameters" if parameters else "optimizer"
    plan = Plan(
        data=ranks // expert // shards if stage else ranks // expert,
        fsdp=shards if stage else 1,
        tensor=tensor,
        context=context,
        expert=expert,
        microbatch=micro,
        remat=_remat(config, flags),
        zero=stage,
        dtype=dtype_of(config, flags)[0],
        sequence=tensor == 1,
        context_by="ulysses" if context > 1 else "gather",
        optimizer=_optimizer(config, flags),
        offload=offload,
    )
    return plan, batch


def _is_hosted(zero: Mapping[str, Any], name: str) -> bool:
    """Whether a part of the state is kept in the host's memory, or beyond it."""
    return str(table_at(zero, name).get("device", "none")) in ("cpu", "nvme")


def stage_of(value: Any) -> int:
    """The stage of ZeRO."""
    return whole(value, "zero_optimization.stage", 0, 3)


def _shards(zero: Mapping[str, Any], ranks: int, expert: int) -> int:
    """Ranks that weights are sharded over, among those that hold the same experts: all, or MiCS's
    groups (-1 is none)."""
    group, alike = whole(zero.get("mics_shard_size", -1), "mics_shard_size", -1), ranks // expert
    if group < 1:
        return alike
    if alike % group:
        over = f" ({ranks} with experts over {expert})" if expert > 1 else ""
        raise InputError(f"mics_shard_size {group} does not divide {alike} data-parallel ranks{over}.")
    return group


def _batch(config: Mapping[str, Any], flags: Mapping[str, str], ranks: int) -> tuple[int, int]:
    """Sequences of a step and of a rank's pass, worked out as DeepSpeed does where one of three is not said."""

    def said(name: str, flag: str) -> int:
        value = config.get(name, "auto")
        if value == "auto":
            return whole(flags[flag], f"--{flag}") if flag in flags else 0
        # A config that the Trainer itself loads must agree with its arguments; other programs pass theirs in.
        loads = flags.get("deepspeed", "true") != "true"
        if loads and flag in flags and number_or_zero(flags[flag]) != whole(value, name):
            raise TERMS.wrong("disagreement", name=name, value=value, flag=flag, said=flags[flag])
        return whole(value, name)

    every = said("train_batch_size", "train_batch_size")
    micro = said("train_micro_batch_size_per_gpu", "per_device_train_batch_size")
    passes = said("gradient_accumulation_steps", "gradient_accumulation_steps")
    if not every and not micro:
        raise TERMS.wrong("no_batch")
    if not micro:
        micro = every // (ranks * (passes or 1))
    if not every:
        every = micro * (passes or 1) * ranks
    if micro < 1 or every % (micro * ranks) or (passes and every != micro * passes * ranks):
        raise TERMS.wrong("batch_product", every=every, micro=micro, ranks=ranks, passes=passes or 1)
    return every, micro


def dtype_of(config: Mapping[str, Any], flags: Mapping[str, str]) -> tuple[str, str]:
    """The format of matmuls, and what to say of it where it is not said outright. `"auto"` is what the program's
    arguments say; a config that is read without a program leaves it open.

    >>> dtype_of({"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}, {})[0]
    'bf16'
    >>> dtype_of({"bf16": {"enabled": "auto"}}, {"max_steps": "10"})[0]
    'fp32'
    """
    left = [dtype for dtype in ("bf16", "fp16") if table_at(config, dtype).get("enabled") == "auto"]
    for dtype in ("bf16", "fp16"):
        on = flags.get(dtype) if dtype in left else table_at(config, dtype).get("enabled", False)
        if is_on(on):
            return dtype, ""
    cast = table_at(config, "torch_autocast")
    if is_on(cast.get("enabled")):
        half = "16" in str(cast.get("dtype", "")) and "bf" not in str(cast.get("dtype", ""))
        return "fp16" if half else "bf16", ""
    if left and not flags:
        return left[0], f'{left[0]}.enabled is "auto", for the program to say; {left[0]} is assumed.'
    return "fp32", "Neither bf16 nor fp16 is turned on: matmuls are read as fp32."


def _remat(config: Mapping[str, Any], flags: Mapping[str, str]) -> str:
    own = table_at(config, "activation_checkpointing")
    if is_on(own.get("cpu_checkpointing")):
        return "offload"
    on = any(is_on(flags.get(name)) for name in ("gradient_checkpointing", "activation_checkpointing"))
    return "block" if on or is_on(own.get("partition_activations")) else "none"


def _optimizer(config: Mapping[str, Any], flags: Mapping[str, str]) -> str:
    kind = str(table_at(config, "optimizer").get("type") or flags.get("optim", "adamw")).lower()
    for word, name in (("8bit", "adam8"), ("muon", "muon"), ("sgd", "sgd"), ("adafactor", "adafactor")):
        if word in kind:
            return name
    return "adam"


def is_on(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in ("true", "1", "yes")


def number_or_zero(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0


FILE, MODEL, SCRIPT = "ds_config.json", "model_config.json", "run_clm.py"
AUTO_EP = ("mixtral", "qwen3_moe", "qwen2_moe", "deepseek_v2", "deepseek_v3")
"""Types of models whose experts AutoEP finds by itself."""
_OURS = ("name", "source", "parameters", "aliases", "checkpoint", "text_config")


def write(asked: TrainingRun) -> WrittenFiles:
    """The config, and the command of a process."""
    asked.check_built("deepspeed")
    plan, differences = as_run(asked)
    run, table = asked.running(plan), load_keys("deepspeed")
    _check(run)
    config = TERMS.group("config", run, spread=_spread(run))
    table.check_all(config)
    files, tokenizer = {FILE: json.dumps(config, indent=2) + "\n"}, hub_id(run.file.model)
    model: Word = tokenizer
    if is_changed(run.file.model) or "/" not in tokenizer:
        own = {name: value for name, value in run.fields.items() if name not in _OURS}
        files[MODEL] = json.dumps(own, indent=2, default=str) + "\n"
        model = config_file(MODEL)
    flags = {"--deepspeed": config_file(FILE), "--config_name": model, "--tokenizer_name": tokenizer}
    words = (SCRIPT, *flag_words(table, flags | TERMS.group("arguments", run)))
    env = TERMS.group("ulysses_environment", ways=str(plan.context)) if plan.context > 1 else {}
    written = WrittenFiles(files, differences=differences, notes=TERMS.remark_on(run, tokenizer=tokenizer))
    return asked.trained(plan, words, written, per="chip", env=env)


def as_run(run: TrainingRun) -> tuple[Plan, tuple[PlanDifference, ...]]:
    """The plan that DeepSpeed runs, and in what it differs from the one given."""
    plan, differences = run.plan, list[PlanDifference]()
    if plan.pipe > 1:
        raise TERMS.refused("pipeline", plan=plan)
    if not plan.zero or plan.fsdp * plan.expert * plan.context == 1:
        plan = replace(plan, data=plan.data * plan.fsdp, fsdp=1, zero=0)
    elif plan.data > 1:
        differences.append(TERMS.difference("data", plan=plan, apart=plan.data * plan.fsdp))
        plan = replace(plan, data=1, fsdp=plan.data * plan.fsdp)
    if plan.remat == "offload":
        differences.append(TERMS.difference("remat"))
        plan = replace(plan, remat="block")
    return plan, tuple(differences)


def _check(run: TrainingRun) -> None:
    """What DeepSpeed and accelerate refuse when they start."""
    plan, fields, kind = run.plan, run.fields, run.fields.get("model_type")
    kv = int(fields.get("num_key_value_heads") or fields.get("num_attention_heads") or 1)
    values = {"kv": kv, "spread": _spread(run), "beside": plan.tensor != plan.chips, "kind": kind}
    TERMS.refuse(run, found=str(kind) in AUTO_EP, types=", ".join(AUTO_EP), **values)


def _spread(run: TrainingRun) -> int:
    """Ranks that experts are spread over."""
    return run.plan.expert * run.plan.tensor if run.experts else 1
