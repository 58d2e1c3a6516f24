"""TRL's own parser (TrlParser) on the flags that are exported for `trl grpo`."""

import contextlib
import io
import json
import sys

sys.path.append(sys.path.pop(0))  # a file beside this one has the package's name

import transformers.training_args as training_args
import trl
from _dataclasses import names
from trl import GRPOConfig, ModelConfig, ScriptArguments, TrlParser
from trl.scripts.grpo import GRPOScriptArguments

for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
    setattr(training_args, name, lambda *_: True)
LAUNCHER = ("--num_machines", "--num_processes", "--accelerate_config", "--machine_rank", "--main_process_ip")
"""What `trl` hands to accelerate before a trainer parses the rest."""


def keys():
    """Names of its configs for models, data, rewards and the trainer."""
    source = "trl 1.16.0 of the package index: ModelConfig, GRPOScriptArguments and GRPOConfig"
    table = names(ModelConfig, ScriptArguments, GRPOScriptArguments, GRPOConfig)
    return {"software": "TRL (GRPO)", "version": trl.__version__, "source": source, "keys": table}


def check(case):
    """None where the parser takes a case; otherwise what it says."""
    words = case["words"][case["words"].index("grpo") + 1 :]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    given = [word for flag, value in pairs if flag not in LAUNCHER for word in (flag, value)]
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            parser = TrlParser((GRPOScriptArguments, GRPOConfig, ModelConfig))
            parser.parse_args_and_config(args=given, fail_with_unknown_args=True)
        except SystemExit:
            return said.getvalue()[-600:]
        except Exception as error:  # whatever it raises is its answer
            return f"{type(error).__name__}: {error}"[-600:]
    return None


if __name__ == "__main__":
    answer = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(answer))
