"""LLaMA-Factory's own arguments (its HfArgumentParser) on the configs that are exported for it."""

import json
import sys

sys.path.append(sys.path.pop(0))  # this file has the package's name

import transformers.training_args as training_args
import yaml
from _dataclasses import names
from llamafactory.hparams import DataArguments, FinetuningArguments, GeneratingArguments, ModelArguments
from llamafactory.hparams.training_args import TrainingArguments
from transformers import HfArgumentParser

for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
    setattr(training_args, name, lambda *_: True)
CLASSES = (ModelArguments, DataArguments, TrainingArguments, FinetuningArguments, GeneratingArguments)


def keys():
    """Names of all its arguments."""
    source = "llamafactory 0.9.5 of the package index: the classes that `llamafactory-cli train` parses a config into"
    return {"software": "LLaMA-Factory", "version": "0.9.5", "source": source, "keys": names(*CLASSES)}


def check(case):
    """None where the parser takes a case; otherwise what it says."""
    found = [value for name, value in case["files"].items() if name.startswith("llama") and name.endswith(".yaml")]
    try:
        HfArgumentParser(CLASSES).parse_dict(yaml.safe_load(found[0]))
    except Exception as error:  # whatever it raises is its answer
        return f"{type(error).__name__}: {error}"[-600:]
    return None


if __name__ == "__main__":
    answer = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(answer))
