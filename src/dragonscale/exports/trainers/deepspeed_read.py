"""DeepSpeed's configs and commands, read as plans: a `ds_config.json` alone, or `deepspeed … script.py --deepspeed ds_config.json …`.

Programs that call DeepSpeed have arguments of their own; those that most of them share (the Trainer's, and a few spellings of the
length of a sequence and of the model's name) are read. `"auto"` in a config stands for the Trainer's argument of that meaning.

>>> flags_of(["train.py", "--bf16", "--max_seq_len", "512", "--deepspeed=ds.json"])
{'bf16': 'true', 'max_seq_len': '512', 'deepspeed': 'ds.json'}
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.imported import Given, Imported, needs, slice_given, training_file
from dragonscale.exports.keys import KeyTable, load_keys
from dragonscale.exports.model_names import hub_id, model_of_sizes, preset_named
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.source import Source
from dragonscale.models.catalogue import is_preset
from dragonscale.training.plan import Plan

_CONFIGS = ("deepspeed", "deepspeed_config", "deepspeed-config", "ds_config", "deepspeed_config_file", "ds_config_path")
_LENGTHS = (
    "block_size",
    "max_seq_length",
    "max_seq_len",
    "max_length",
    "model_max_length",
    "seq_length",
    "seq_len",
    "cutoff_len",
)
_NAMES = ("model_name_or_path", "config_name", "model_name", "model", "model_id", "base_model")
_OWN = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"})
_UNPLANNED = (
    "offload_param", "zenflow", "zero_quantized_weights", "zero_quantized_gradients", "zero_hpz_partition_size", "cpu_offload",
)  # fmt: skip
_HERE = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?[^\n]*\n(.*?)^\s*\1\s*$", re.DOTALL | re.MULTILINE)


def flags_of(words: Sequence[str]) -> dict[str, str]:
    """The flags of any program, by name without dashes; one without a value is true."""
    found: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and at < len(words) and not words[at].startswith("--"):
                value = words[at]
                at += 1
            found[name] = value or "true"
    return found


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
    config = dict(source.table or {}) if command is None else _config_of(source, command, flags)
    world = command.processes if command is not None else 0
    piece = slice_given(source, given, world)
    chips = piece.chips if piece is not None else world
    if not chips:
        raise needs("how many GPUs there are", "the slice by --on h100:8", source)
    if world and chips != world:
        raise InputError(
            f"{source.shown} starts {world} processes, and {piece} has {chips} chips; give the slice by --on."
        )
    model = given.model or _model(source, flags)
    env = command.env if command is not None else {}
    plan, batch = _plan(config, flags, env, chips)
    seq = next((_count(flags[name], name) for name in _LENGTHS if name in flags), 0)
    given = Given(given.model, str(piece) if piece is not None else given.slice)
    file = training_file(source, given, plan, batch, seq, model, "deepspeed")
    file = replace(file, tokens=_tokens(flags, batch * seq, file.tokens))
    unplanned = _unplanned(config, flags)
    unknown = [name for name in _dotted(config) if not _known(table, name)]
    ignored = [f"--{name}" for name in flags if name not in (*_CONFIGS, *_LENGTHS, *_NAMES, *_READ)]
    notes = [] if model else ["The config does not say the model; give it by --model."]
    notes += (
        ["mics_shard_size was removed in DeepSpeed 0.19; its groups are read as fsdp."]
        if "mics_shard_size" in _zero(config)
        else []
    )
    return Imported("deepspeed", table.version, file, tuple(notes), tuple(ignored), tuple(unplanned), tuple(unknown))


_READ = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "gradient_checkpointing", "activation_checkpointing",
    "optim", "max_steps", "zero_stage", "offload",
)  # fmt: skip


def _config_of(source: Source, command: ShellCommand, flags: Mapping[str, str]) -> dict[str, Any]:
    """The config that a command names: beside it, or written by the script itself."""
    name = next((flags[one] for one in _CONFIGS if flags.get(one, "true") != "true"), "")
    found = source.beside(name)
    if found is not None and found.table is not None:
        return dict(found.table)
    for _, body in _HERE.findall(source.text):
        text = re.sub(r"\$\{?(\w+)\}?", lambda match: command.env.get(match[1], '"auto"'), body)
        try:
            table = json.loads(text)
        except ValueError:
            continue
        if isinstance(table, dict) and _OWN & set(table):
            return table
    if name and "zero_stage" not in flags:
        raise InputError(
            f"{source.shown} names the DeepSpeed config {name}, which is not there; import it from the folder that has it."
        )
    return {
        "zero_optimization": {"stage": int(flags.get("zero_stage", "0") or 0)},
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
    }


def _model(source: Source, flags: Mapping[str, str]) -> str:
    kept = str(source.kept.get("model", ""))
    for name in _NAMES:
        if name in flags:
            found = source.beside(flags[name]) if flags[name].endswith(".json") else None
            if found is not None and found.table is not None:
                made = model_of_sizes(found.table, kept.partition("?")[0])
                return (
                    kept
                    if kept and made.partition("?")[0] == kept.partition("?")[0] and ("?" in made) == ("?" in kept)
                    else made
                )
            return (
                kept
                if kept and hub_id(kept) == flags[name]
                else preset_named(flags[name])
                if is_preset(flags[name])
                else flags[name]
            )
    return kept


def _zero(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = config.get("zero_optimization")
    return found if isinstance(found, Mapping) else {}


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, Mapping) else {}


def _plan(config: Mapping[str, Any], flags: Mapping[str, str], env: Mapping[str, str], chips: int) -> tuple[Plan, int]:
    """The plan, and the batch in sequences."""
    zero = _zero(config)
    stage = _whole(zero.get("stage", 0), "zero_optimization.stage")
    if stage > 3:
        raise InputError(f"zero_optimization.stage is {stage}; DeepSpeed has 0, 1, 2 and 3.")
    tensor = max(_whole(_part(config, "tensor_parallel").get("autotp_size", 1), "tensor_parallel.autotp_size"), 1)
    context = _whole(
        env.get("PARALLELISM_CONFIG_SP_SIZE") or config.get("sequence_parallel_size", 1), "sequence_parallel_size"
    )
    own = _part(config, "expert_parallel")
    spread = _whole(own.get("autoep_size", 1), "expert_parallel.autoep_size") if own.get("enabled") else 1
    expert = spread // math.gcd(spread, tensor)
    ranks, rest = divmod(chips, tensor * context)
    if rest or ranks % expert:
        raise InputError(
            f"{chips} chips do not divide into tensor={tensor} x sequence={context} with experts over {spread}; give the slice by --on."
        )
    batch, micro = _batch(config, flags, ranks)
    group = (
        _whole(zero.get("mics_shard_size", 0), "mics_shard_size") if _number(zero.get("mics_shard_size", 0)) > 0 else 0
    )
    shards = group if group and ranks % group == 0 else ranks // expert
    offloaded = str(_part(zero, "offload_optimizer").get("device", "none")) in ("cpu", "nvme") or _truth(
        zero.get("cpu_offload")
    )
    plan = Plan(
        data=ranks // expert // shards if stage else ranks // expert, fsdp=shards if stage else 1, tensor=tensor, context=context,
        expert=expert, microbatch=micro, remat=_remat(config, flags), zero=stage, dtype=_dtype(config, flags), sequence=tensor == 1,
        context_by="ulysses" if context > 1 else "gather", optimizer=_optimizer(config, flags),
        offload="optimizer" if offloaded else "none",
    )  # fmt: skip
    return plan, batch


def _batch(config: Mapping[str, Any], flags: Mapping[str, str], ranks: int) -> tuple[int, int]:
    """Sequences of a step and of a rank's pass, worked out as DeepSpeed does where one of three is not said."""

    def said(name: str, flag: str) -> int:
        value = config.get(name, "auto")
        if value == "auto":
            return _count(flags[flag], f"--{flag}") if flag in flags else 0
        return _count(value, name)

    whole = said("train_batch_size", "train_batch_size")
    micro = said("train_micro_batch_size_per_gpu", "per_device_train_batch_size")
    passes = said("gradient_accumulation_steps", "gradient_accumulation_steps")
    if not whole and not micro:
        raise InputError(
            "The config says neither train_batch_size nor train_micro_batch_size_per_gpu, which DeepSpeed needs one of."
        )
    if not micro:
        micro = whole // (ranks * (passes or 1))
    if not whole:
        whole = micro * (passes or 1) * ranks
    if micro < 1 or whole % (micro * ranks) or (passes and whole != micro * passes * ranks):
        raise InputError(
            f"train_batch_size {whole} is not train_micro_batch_size_per_gpu {micro} x gradient_accumulation_steps {passes or 1} x {ranks} ranks."
        )
    return whole, micro


def _dtype(config: Mapping[str, Any], flags: Mapping[str, str]) -> str:
    for dtype in ("bf16", "fp16"):
        on = _part(config, dtype).get("enabled", False)
        if _truth(flags.get(dtype) if on == "auto" else on):
            return dtype
    cast = _part(config, "torch_autocast")
    if _truth(cast.get("enabled")):
        return "fp16" if "16" in str(cast.get("dtype", "")) and "bf" not in str(cast.get("dtype", "")) else "bf16"
    return "fp32"


def _remat(config: Mapping[str, Any], flags: Mapping[str, str]) -> str:
    own = _part(config, "activation_checkpointing")
    if _truth(own.get("cpu_checkpointing")):
        return "offload"
    on = any(_truth(flags.get(name)) for name in ("gradient_checkpointing", "activation_checkpointing"))
    return "block" if on or _truth(own.get("partition_activations")) else "none"


def _optimizer(config: Mapping[str, Any], flags: Mapping[str, str]) -> str:
    kind = str(_part(config, "optimizer").get("type") or flags.get("optim", "adamw")).lower()
    for word, name in (("8bit", "adam8"), ("muon", "muon"), ("sgd", "sgd"), ("adafactor", "adafactor")):
        if word in kind:
            return name
    return "adam"


def _unplanned(config: Mapping[str, Any], flags: Mapping[str, str]) -> list[str]:
    zero = _zero(config)
    found = [
        f"zero_optimization.{name}"
        for name in _UNPLANNED
        if zero.get(name) not in (None, False, 1, {}) and not _nothing(zero.get(name))
    ]
    kind = str(_part(config, "optimizer").get("type", "adamw")).lower()
    found += [f"optimizer.type={kind}"] if kind not in ("adam", "adamw", "muon", "sgd") else []
    bf16 = _part(config, "bf16")
    found += [
        f"bf16.{name}" for name in ("bf16_master_weights_and_grads", "bf16_optimizer_states") if _truth(bf16.get(name))
    ]
    return found + [
        f"--{name}"
        for name in ("use_liger_kernel", "lora_dim", "lora_r", "use_lora", "use_peft")
        if _truth(flags.get(name)) or _number(flags.get(name, 0)) > 1
    ]


def _nothing(value: Any) -> bool:
    return isinstance(value, Mapping) and str(value.get("device", "")) == "none"


def _dotted(config: Mapping[str, Any], path: str = "") -> Iterable[str]:
    for name, value in config.items():
        if isinstance(value, Mapping) and f"{path}{name}" not in (
            "optimizer.params",
            "scheduler",
            "zero_optimization.zenflow",
            "comms_logger",
        ):
            yield from _dotted(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


_SECTIONS = (
    "zero_optimization",
    "bf16",
    "fp16",
    "tensor_parallel",
    "expert_parallel",
    "activation_checkpointing",
    "optimizer",
)


def _known(table: KeyTable, name: str) -> bool:
    """Whether DeepSpeed has a name; parts of sections that are not in the table are taken as they are."""
    if table.known(name) is not None or name == "zero_optimization.mics_shard_size":
        return True
    head = name.partition(".")[0]
    return head != name and head not in _SECTIONS


def _tokens(flags: Mapping[str, str], step: int, kept: str) -> str:
    from dragonscale.units import parse

    steps = _count(flags["max_steps"], "--max_steps") if _number(flags.get("max_steps", 0)) > 0 else 0
    if steps < 1000 or not step:
        return kept
    if kept and kept != "chinchilla" and max(round(parse(kept, "count", "the tokens") / step), 1) == steps:
        return kept
    return str(steps * step)


def _truth(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in ("true", "1", "yes")


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _whole(value: Any, name: str) -> int:
    number = math.nan if isinstance(value, bool) else _number(value) if value not in ("", None) else math.nan
    if (
        not math.isfinite(number)
        or number != int(number)
        or not 0 <= number <= 1e9
        or (number == 0 and str(value) not in ("0", "0.0"))
    ):
        raise InputError(f"{name} is {value}; write a whole number.")
    return int(number)


def _count(value: Any, name: str) -> int:
    number = _whole(value, name)
    if number < 1:
        raise InputError(f"{name} is {value}; write a number of at least 1.")
    return number
