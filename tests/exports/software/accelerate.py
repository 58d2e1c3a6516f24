"""accelerate's launch parser and config classes, and transformers' TrainingArguments, on what is exported for them.

A case goes the way that `accelerate launch` takes it: the command line is parsed, the config file read over it, the
environment of the processes made, and from that environment the ParallelismConfig and the FSDP plugin that a script
would get. Its JSON file of arguments is given to TrainingArguments, except for those that `run_clm.py` (an example of
transformers, not in the package) declares.
"""

import contextlib
import dataclasses
import io
import json
import os
import sys
import tempfile
import typing
from pathlib import Path

sys.path.pop(0)  # this file has the package's name

import transformers.training_args as training_args
from accelerate.commands import launch
from accelerate.commands.config.config_args import ClusterConfig
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import launch as environments
from accelerate.utils.dataclasses import FullyShardedDataParallelPlugin

environments.is_fp8_available = lambda: True  # which GPU there is decides nothing that is checked here
for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
    setattr(training_args, name, lambda *_: True)

RUN_CLM = (
    "model_name_or_path",
    "model_type",
    "config_overrides",
    "config_name",
    "tokenizer_name",
    "dtype",
    "dataset_name",
    "dataset_config_name",
    "train_file",
    "streaming",
    "block_size",
    "preprocessing_num_workers",
    "trust_remote_code",
)
"""Arguments of examples/pytorch/language-modeling/run_clm.py beside TrainingArguments."""
TABLES = ("fsdp_config", "parallelism_config", "fp8_config", "deepspeed_config", "dynamo_config")
PREFIXES = {
    "fsdp_config": "fsdp_",
    "parallelism_config": "parallelism_config_",
    "fp8_config": "fp8_",
    "dynamo_config": "dynamo_",
}
DEEPSPEED = (
    "deepspeed_config_file",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero3_init_flag",
    "zero3_save_16bit_model",
    "deepspeed_multinode_launcher",
)


def keys():
    """Flags of the launcher, keys of its config file (`config.…`) and arguments of the Trainer (`args.…`)."""
    table = {}
    for action in launch.launch_command_parser()._actions:
        if not action.option_strings or action.dest == "help":
            continue
        name = action.option_strings[0]
        long = next((one for one in action.option_strings if one.startswith("--") and "-" not in one[2:]), name)
        key = {"also": [one for one in action.option_strings if one != long]}
        key["type"] = "flag" if action.nargs == 0 else {int: "int", float: "float"}.get(action.type, "str")
        key["choices"] = list(action.choices or [])
        key["default"] = action.default if isinstance(action.default, int | float | str | bool) else None
        table[long] = _short(key)
    for field in dataclasses.fields(ClusterConfig):
        if field.name not in TABLES:
            table[f"config.{field.name}"] = {}
    for name in list(table):
        for section, prefix in PREFIXES.items():
            if name.startswith(f"--{prefix}"):
                table[f"config.{section}.{name[2:]}"] = {
                    key: value for key, value in table[name].items() if key == "choices"
                }
    for name in DEEPSPEED:
        assert f"--{name}" in table
        table[f"config.deepspeed_config.{name}"] = {}
    hints = typing.get_type_hints(training_args.TrainingArguments)
    for field in dataclasses.fields(training_args.TrainingArguments):
        kind = {bool: "bool", int: "int", float: "float"}.get(hints[field.name], "str")
        default = field.default if isinstance(field.default, int | float | str | bool) else None
        table[f"args.{field.name}"] = _short({"type": kind, "default": getattr(default, "value", default)})
    table["args.optim"]["choices"] = [one.value for one in training_args.OptimizerNames]
    for name in RUN_CLM:
        table.setdefault(f"args.{name}", {})
    source = (
        "accelerate 1.15.0 (its launch parser and ClusterConfig) and transformers 5.22.2 (TrainingArguments) of the "
        "package index; examples/run_clm.py"
    )
    return {"software": "accelerate", "version": "1.15.0", "source": source, "keys": table}


def _short(key):
    return {name: value for name, value in key.items() if value not in ([], None) and (name, value) != ("type", "str")}


def check(case):
    """None where all of them take a case; otherwise what they say."""
    kept = dict(os.environ)
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stderr(io.StringIO()) as said:
        for name, content in case["files"].items():
            (Path(place) / name).write_text(content, encoding="utf-8")
        os.chdir(place)
        try:
            return _checked(case)
        except SystemExit:
            return said.getvalue()[-600:]
        except Exception as error:  # whatever it raises is its answer
            return f"{type(error).__name__}: {error}"[-600:]
        finally:
            os.chdir("/")
            os.environ.clear()
            os.environ.update(kept)


def _checked(case):
    text = next(value for name, value in case["files"].items() if name.endswith(".sh"))
    words = " ".join(text.replace("\\\n", " ").split()).partition("accelerate launch ")[2].replace('"', "").split()
    words = ["0" if word == "$NODE_RANK" else "127.0.0.1" if word == "$MASTER_ADDR" else word for word in words]
    args, _, _ = launch._validate_launch_command(launch.launch_command_parser().parse_args(words))
    made = json.loads((Path(args.training_script_args[0])).read_text(encoding="utf-8"))
    if args.use_deepspeed:
        import accelerate.utils.launch as used

        used.is_deepspeed_available = lambda: True
        environment = used.prepare_extend_env_parallelism_config(args, {}) if args.use_parallelism_config else {}
        os.environ.update(environment | {"ACCELERATE_MIXED_PRECISION": args.mixed_precision})
    else:
        os.environ.update(environments.prepare_multi_gpu_env(args))
    if args.use_parallelism_config:
        sizes = ParallelismConfig()
        if not args.use_deepspeed and sizes.total_size != args.num_processes:
            return f"ParallelismConfig is for {sizes.total_size} processes, and {args.num_processes} are started"
        if args.use_fsdp and not sizes.dp_shard_enabled and not sizes.cp_enabled:
            return "FSDP has no dimension to shard across"
    if args.use_fsdp:
        plugin = FullyShardedDataParallelPlugin()
        if plugin.fsdp_version != 2:
            return "not FSDP2"
    own = {field.name for field in dataclasses.fields(training_args.TrainingArguments)}
    stray = set(made) - own - set(RUN_CLM)
    if stray:
        return f"neither TrainingArguments nor run_clm.py has {stray}"
    if "config_overrides" in made and "model_name_or_path" in made:
        return "config_overrides excludes model_name_or_path"
    arguments = training_args.TrainingArguments(
        **{name: value for name, value in made.items() if name in own}, use_cpu=False
    )
    if arguments.mixed_precision != args.mixed_precision:
        return f"the arguments turn mixed precision from {args.mixed_precision} to {arguments.mixed_precision}"
    training_args.OptimizerNames(arguments.optim)
    return None


if __name__ == "__main__":
    found = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(found))
