"""TRL's own parser (TrlParser) on the files that are exported for `trl sft --config` and its kin."""

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.append(sys.path.pop(0))  # this file has the package's name

import transformers.training_args as training_args
import trl
from _dataclasses import names
from trl import DPOConfig, KTOConfig, ModelConfig, RewardConfig, ScriptArguments, SFTConfig, TrlParser

for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
    setattr(training_args, name, lambda *_: True)
CONFIGS = {"sft": SFTConfig, "dpo": DPOConfig, "kto": KTOConfig, "reward": RewardConfig}


def keys():
    """Names of its configs for models, data and every trainer."""
    source = "trl 1.16.0 of the package index: ModelConfig, ScriptArguments and the configs of its trainers"
    table = names(ModelConfig, ScriptArguments, *CONFIGS.values())
    return {"software": "TRL", "version": trl.__version__, "source": source, "keys": table}


def check(case):
    """None where the parser takes a case; otherwise what it says."""
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stderr(io.StringIO()) as said:
        for name, content in case["files"].items():
            (Path(place) / name).write_text(content, encoding="utf-8")
        text = next(value for name, value in case["files"].items() if name.endswith(".sh"))
        kind = text.partition("trl ")[2].split()[0] if "trl " in text else "sft"
        os.chdir(place)
        try:
            found = [name for name in case["files"] if name.startswith("trl") and name.endswith(".yaml")]
            parser = TrlParser((ScriptArguments, CONFIGS[kind], ModelConfig))
            parser.parse_args_and_config(args=["--config", *found], fail_with_unknown_args=True)
        except SystemExit:
            return said.getvalue()[-600:]
        except Exception as error:  # whatever it raises is its answer
            return f"{type(error).__name__}: {error}"[-600:]
        finally:
            os.chdir("/")
    return None


if __name__ == "__main__":
    answer = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(answer))
