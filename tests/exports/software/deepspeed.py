"""DeepSpeed's own config classes, and the Trainer's own parser, on what is exported for them."""

import argparse
import ast
import inspect
import json
import os
import re
import sys
from importlib.metadata import version
from typing import Any

sys.path.pop(0)  # this file has the name of what it imports
os.environ["DS_ACCELERATOR"] = "cpu"

SCRIPT = {
    "model_name_or_path": "str",
    "model_type": "str",
    "config_overrides": "str",
    "config_name": "str",
    "tokenizer_name": "str",
    "dtype": "str",
    "dataset_name": "str",
    "dataset_config_name": "str",
    "train_file": "str",
    "validation_file": "str",
    "streaming": "bool",
    "block_size": "int",
    "preprocessing_num_workers": "int",
    "max_train_samples": "int",
    "trust_remote_code": "bool",
}
"""What examples/pytorch/language-modeling/run_clm.py of transformers takes beside the Trainer's arguments (2025-08-25).
"""


def kind(annotation: Any) -> str:
    text = str(annotation).lower()
    for word in ("bool", "int", "float"):
        if re.search(rf"\b{word}\b", text) and "str" not in text:
            return word
    return "str"


def of_model(model: Any, path: str) -> dict[str, Any]:
    """The fields of a pydantic model, by the names that a file gives them."""
    found = {}
    for name, field in model.model_fields.items():
        key: dict[str, Any] = {"type": kind(field.annotation)}
        if isinstance(field.default, (bool, int, float, str)):
            key["default"] = field.default if isinstance(field.default, (bool, float, str)) else int(field.default)
        found[f"{path}.{field.alias or name}"] = key
    return found


def top_level(config: Any) -> list[str]:
    """The names that the functions of runtime/config.py look up at the top of a file."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(config))):
        named: list[ast.expr] = []
        if isinstance(node, ast.Call) and len(node.args) > 1 and getattr(node.args[0], "id", "") == "param_dict":
            named = [node.args[1]]
        if isinstance(node, ast.Compare) and "param_dict" in ast.dump(node.comparators[0]):
            named = [node.left]
        if (
            isinstance(node, ast.Call)
            and ast.dump(node.func).startswith("Attribute(value=Name(id='param_dict'")
            and node.args
        ):
            named = [node.args[0]]
        for one in named:
            value = getattr(config, one.id, None) if isinstance(one, ast.Name) else getattr(one, "value", None)
            if isinstance(value, str):
                found.add(value)
    return sorted(found)


def parser() -> argparse.ArgumentParser:
    from transformers import HfArgumentParser, TrainingArguments

    made = HfArgumentParser(TrainingArguments)  # pyright: ignore[reportArgumentType]
    for name, type_ in SCRIPT.items():
        made.add_argument(f"--{name}", type={"int": int}.get(type_, str))
    return made


def keys() -> dict[str, Any]:
    from dataclasses import fields

    from deepspeed.module_inject.auto_ep_config import AutoEPConfig
    from deepspeed.runtime import config
    from deepspeed.runtime.activation_checkpointing.config import ACT_CHKPT_DEFAULT
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.tensor_parallel.config import TPTrainingConfig
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from deepspeed.runtime.zero.offload_config import (
        DeepSpeedZeroOffloadOptimizerConfig,
        DeepSpeedZeroOffloadParamConfig,
    )

    found: dict[str, Any] = {name: {} for name in top_level(config)}
    found["sequence_parallel_size"] = {"type": "int"}
    models = {
        "zero_optimization": DeepSpeedZeroConfig,
        "zero_optimization.offload_optimizer": DeepSpeedZeroOffloadOptimizerConfig,
        "zero_optimization.offload_param": DeepSpeedZeroOffloadParamConfig,
        "bf16": DeepSpeedBF16Config,
        "fp16": DeepSpeedFP16Config,
        "tensor_parallel": TPTrainingConfig,
    }
    for path, model in models.items():
        found |= {path: {"type": "json"}, **of_model(model, path)}
    found |= {
        name: {"type": "json"}
        for name in ("expert_parallel", "activation_checkpointing", "optimizer", "data_types", "torch_autocast")
    }
    found |= {
        f"expert_parallel.{one.name}": {"type": kind(one.type)}
        for one in fields(AutoEPConfig)
        if not one.name.startswith("_")
    }
    found |= {f"activation_checkpointing.{name}": {"type": "bool"} for name in ACT_CHKPT_DEFAULT}
    found |= {
        f"optimizer.{name}": {}
        for name in (
            "type",
            "params",
            "legacy_fusion",
            "params.lr",
            "params.betas",
            "params.eps",
            "params.weight_decay",
        )
    }
    found |= {"data_types.grad_accum_dtype": {}, "torch_autocast.enabled": {"type": "bool"}, "torch_autocast.dtype": {}}
    for action in parser()._actions:
        for flag in action.option_strings:
            if flag.startswith("--") and flag != "--help":
                type_ = "flag" if action.nargs == 0 else "bool" if "bool" in str(action.type) else kind(action.type)
                key: dict[str, Any] = {"type": type_}
                if action.choices:
                    key["choices"] = [str(getattr(one, "value", one)) for one in action.choices]
                found[flag] = key
    for name, type_ in SCRIPT.items():
        found[f"--{name}"] = {"type": type_}
    own = version("deepspeed")
    source = (
        f"deepspeed {own} (runtime/config.py, zero/config.py, …) and TrainingArguments of transformers "
        f"{version('transformers')}"
    )
    return {"software": "DeepSpeed", "version": own, "source": source, "keys": found}


class Groups:
    """What DeepSpeed asks for the number of data-parallel ranks."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def get_data_parallel_world_size(self) -> int:
        return self.ranks


def check(case: dict[str, Any]) -> str | None:
    from deepspeed.module_inject.auto_ep_config import validate_autoep_config
    from deepspeed.runtime import config as runtime
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    table = json.loads(case["files"]["ds_config.json"])
    script = next(text for name, text in case["files"].items() if name.endswith(".sh"))
    counts = [
        int(found[1])
        for found in (re.search(rf"--{name}[ =](\d+)", script) for name in ("nproc-per-node", "nnodes"))
        if found
    ]
    world = counts[0] * (counts[1] if len(counts) > 1 else 1)
    tensor = table.get("tensor_parallel", {}).get("autotp_size", 1)
    context = int(case["env"].get("PARALLELISM_CONFIG_SP_SIZE", 1))
    try:
        given = parser().parse_args(case["words"][1:])
        given.world_size = world
        trainer = HfTrainerDeepSpeedConfig(json.loads(json.dumps(table)))
        trainer.trainer_config_process(given)
        if trainer.mismatches:
            return f"the Trainer's arguments differ: {trainer.mismatches}"
        runtime.dist = argparse.Namespace(get_rank=lambda: 0, get_world_size=lambda: world)
        made = runtime.DeepSpeedConfig(json.loads(json.dumps(table)), Groups(world // tensor // context))
        validate_autoep_config(
            made.expert_parallel_config, world, 1, tensor, context, zero_stage=int(made.zero_optimization_stage)
        )
    except SystemExit:
        return "the Trainer's parser does not take the arguments"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:600]
    if "accelerate" not in case["env"] and tensor > 1 and tensor != world:
        return "accelerate makes a mesh of the tensor ranks alone"
    return None


def main() -> None:
    answer: Any = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(answer))


if __name__ == "__main__":
    main()
