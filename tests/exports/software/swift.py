"""Names that ms-swift's commands take: the annotated fields of its classes of arguments, by their source, and the
Trainer's, which it takes too."""

import ast
import json
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.pop(0)  # this file has the package's name

import yaml

TRAINER = """per_device_train_batch_size gradient_accumulation_steps max_steps num_train_epochs learning_rate bf16 fp16 tf32
deepspeed fsdp fsdp_config optim warmup_ratio warmup_steps save_steps eval_steps save_strategy eval_strategy save_total_limit
logging_steps output_dir seed report_to max_grad_norm adam_beta1 adam_epsilon torch_compile neftune_noise_alpha
per_device_eval_batch_size save_only_model resume_from_checkpoint ddp_find_unused_parameters push_to_hub hub_model_id"""
"""Arguments of transformers' Seq2SeqTrainingArguments that its examples use."""
FILES = ("arguments", "trainers/arguments.py", "megatron/arguments")


def keys():
    """Every annotated field of a class of arguments."""
    place = Path(find_spec("swift").origin).parent
    paths = [
        path for name in FILES for path in ([place / name] if name.endswith(".py") else (place / name).rglob("*.py"))
    ]
    table = {name: {} for name in TRAINER.split()}
    for path in sorted(paths):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
                table |= {one.target.id: {} for one in fields if isinstance(one.target, ast.Name)}
    source = (
        "ms-swift 4.6.0 of the package index: fields of its classes of arguments; TrainingArguments of transformers"
    )
    return {"software": "ms-swift", "version": "4.6.0", "source": source, "keys": table}


def check(case):
    """None where all names of a case are arguments."""
    known = keys()["keys"]
    text = next(value for name, value in case["files"].items() if name.startswith("swift") and name.endswith(".yaml"))
    strange = [name for name in yaml.safe_load(text) if name not in known]
    return f"no such arguments: {', '.join(strange)}" if strange else None


if __name__ == "__main__":
    answer = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(answer))
