"""vLLM's own parser and config classes, on a machine without a GPU: what `vllm serve` does before it loads weights.

`keys` prints the names of `vllm serve`; `check` parses each command with vLLM's parser and builds its whole engine
config (parallel, scheduler, cache, quantisation, speculation) for the model's `config.json`, with the platform told
which GPU it is on.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import tempfile
import types
from argparse import BooleanOptionalAction
from pathlib import Path

sys.path.pop(0)  # this file has the name of the package
os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="CRITICAL", VLLM_USE_PRECOMPILED="0", VLLM_NO_USAGE_STATS="1")


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of kernels and grammars that are imported and not used before weights are loaded."""

    NAMES = ("xgrammar", "llguidance", "vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch", "vllm.vllm_flash_attn")

    def find_spec(self, name, *_):
        found = any(name == one or name.startswith(f"{one}.") for one in self.NAMES)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if found else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: _stub(name) if not name.startswith("__") else _missing(name)
        return module

    def exec_module(self, module):
        pass


def _stub(name):
    return type(name, (), {"__init__": lambda *_, **__: None})


def _missing(name):
    raise AttributeError(name)


GPUS = {  # capability and GiB, as nvidia-smi counts them
    "h100": (9, 0, 80),
    "h200": (9, 0, 141),
    "a100": (8, 0, 80),
    "b200": (10, 0, 180),
    "gb200": (10, 0, 186),
    "b300": (10, 3, 270),
    "l40s": (8, 9, 45),
    "rtx4090": (8, 9, 24),
    "t4": (7, 5, 15),
}


def platform_of(chip):
    """vLLM's CUDA platform on a GPU that is not there."""
    from vllm.platforms import cuda
    from vllm.platforms.interface import DeviceCapability

    major, minor, gib = GPUS.get(chip, GPUS["h100"])

    class Absent(cuda.NonNvmlCudaPlatform):
        @classmethod
        def get_device_capability(cls, *_, **__):
            return DeviceCapability(major, minor)

        @classmethod
        def has_device_capability(cls, capability, *_, **__):
            wanted = capability if isinstance(capability, tuple) else divmod(capability, 10)
            return (major, minor) >= tuple(wanted)

        @classmethod
        def get_device_name(cls, *_, **__):
            return f"NVIDIA {chip.upper()}"

        @classmethod
        def get_device_total_memory(cls, *_, **__):
            return gib << 30

        @classmethod
        def is_fully_connected(cls, *_):
            return True

        @classmethod
        def device_count(cls):
            return 8

        @classmethod
        def num_compute_units(cls, *_, **__):
            return 132

    return Absent


def start(chip):
    """vLLM told that it is on a chip."""
    import vllm.platforms

    vllm.platforms._current_platform = platform_of(chip)()
    import torch

    torch.cuda.device_count = lambda: 8
    torch.accelerator.device_count = lambda: 8
    for name in (
        "cutlass_scaled_mm_supports_fp8",
        "cutlass_scaled_mm_supports_block_fp8",
        "cutlass_scaled_mm_supports_fp4",
        "cutlass_group_gemm_supported",
    ):
        setattr(torch.ops._C, name, lambda *_: True)


def told_models():
    """vLLM looks at a model's class in a process of its own, which imports kernels; what it would find of these is said
    instead."""
    from dataclasses import fields

    from vllm.model_executor.models import registry

    def inspect(self, *_):
        hybrid = any(
            word in self.class_name for word in ("Jamba", "Next", "Qwen3_5", "KimiLinear", "NemotronH", "MiniMaxText01")
        )
        said = {
            "architecture": self.class_name,
            "is_text_generation_model": True,
            "attn_type": "decoder",
            "supports_pp": True,
        }
        said |= {
            "is_hybrid": hybrid,
            "has_inner_state": hybrid,
            "default_seq_pooling_type": "LAST",
            "default_tok_pooling_type": "ALL",
        }
        said |= {"score_type": "bi-encoder", "supported_video_pruning_methods": ()}
        return registry._ModelInfo(**{one.name: said.get(one.name, False) for one in fields(registry._ModelInfo)})

    registry._LazyRegisteredModel.inspect_model_cls = inspect
    import vllm.triton_utils

    vllm.triton_utils.triton.Config = lambda *_, **__: types.SimpleNamespace(
        num_stages=1, num_warps=4
    )  # Triton is not installed


def with_class(config):
    """A config that names its model's class, as checkpoints do."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as names

    made = {"architectures": [names.get(config.get("model_type"), "LlamaForCausalLM")], **config}
    if made.get("quantization_config", {}).get("quant_method") == "fp8":
        made["quantization_config"] = {"activation_scheme": "dynamic", **made["quantization_config"]}
    return made


def serve_parser():
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser())


def bench_parser():
    from vllm.benchmarks.serve import add_cli_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    return parser


def router_parser():
    """That of vllm-router's Python front, without the Rust library behind it."""
    from argparse import ArgumentParser

    sys.modules["vllm_router_rs"] = types.ModuleType("vllm_router_rs")
    sys.modules["vllm_router_rs"].__getattr__ = lambda name: (
        type(name, (), {}) if not name.startswith("__") else _missing(name)
    )
    from vllm_router.router_args import RouterArgs

    parser = ArgumentParser()
    RouterArgs.add_cli_args(parser)
    return parser


def key_of(action):
    """A flag's first long spelling and its entry in the table."""
    names = [name for name in action.option_strings if not name.startswith("--no-")]
    off = [name for name in action.option_strings if name.startswith("--no-")]
    if not names:
        return None
    long = next((name for name in names if name.startswith("--") and "_" not in name), names[0])
    key = {"type": type_of(action)}
    if action.choices and key["type"] not in ("flag",) and len(list(action.choices)) <= 60:
        key["choices"] = [one for one in action.choices if isinstance(one, (str, int, float))]
    if also := sorted(name for name in names if name != long):
        key["also"] = also
    if off and isinstance(action, BooleanOptionalAction):
        key["off"] = off[0]
    if isinstance(action.default, (bool, int, float, str)) and action.default != float("inf"):
        key["default"] = action.default
    return long, key


def type_of(action):
    if action.nargs == 0 or isinstance(action, BooleanOptionalAction):
        return "flag"
    if action.nargs in ("+", "*") or isinstance(action.nargs, int):
        return "list"
    name = getattr(action.type, "__name__", str(action.type))
    told = repr(action.type)
    if action.type is int or "human_readable_int" in name or name == "int":
        return "int"
    if action.type is float:
        return "float"
    inner = [cell.cell_contents for cell in getattr(action.type, "__closure__", None) or ()]
    names = {name, *(getattr(one, "__name__", "") for one in inner)}
    if {"loads", "parse_dataclass"} & names or "json" in told.lower() or isinstance(action.default, dict):
        return "json"
    return "str"


def table(parser, software, source):
    import vllm

    found = dict(filter(None, map(key_of, parser._actions)))
    found.pop("--help", None)
    return {"software": software, "version": vllm.__version__, "source": source, "keys": found}


def check(case, parser):
    """What vLLM says of a command; None where it takes it."""
    words = case["words"]
    if words[:1] == ["vllm-router"]:
        return parsed(router_parser(), words[1:])[1]
    if words[:2] == ["vllm", "bench"]:
        return parsed(bench_parser(), words[3:])[1]
    if words[:2] != ["vllm", "serve"]:
        return None
    filled = [word.replace("$NODE_RANK", "0").replace("$MASTER_ADDR", "127.0.0.1") for word in words[2:]]
    arguments, wrong = parsed(parser, filled)
    if wrong:
        return wrong
    start(case.get("chip", "h100"))
    from vllm import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import validate_parsed_serve_args
    from vllm.usage.usage_lib import UsageContext

    with tempfile.TemporaryDirectory() as place:
        try:
            validate_parsed_serve_args(arguments)
            arguments.model = arguments.tokenizer = saved(case["config"], Path(place, "model"))
            arguments.skip_tokenizer_init = True
            drafts = arguments.speculative_config
            if drafts and drafts.get("model"):
                drafts["model"] = saved(
                    eagle(case["config"]) if drafts["method"] == "eagle3" else case["config"], Path(place, "draft")
                )
            engine = AsyncEngineArgs.from_cli_args(arguments)
            if case["chip"] in GPUS and not arguments.trust_remote_code:
                engine.create_engine_config(UsageContext.OPENAI_API_SERVER)
        except (Exception, SystemExit) as error:
            return f"{type(error).__name__}: {str(error)[:600]}"
    return None


def eagle(config):
    """An EAGLE-3 head: one layer of a Llama of the model's width and vocabulary."""
    plain = {**config, **config.get("text_config", {})}
    sizes = {"hidden_size": plain.get("hidden_size", 4096), "vocab_size": plain.get("vocab_size", 32000)}
    heads = {
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "head_dim": 128,
        "num_hidden_layers": 1,
        "intermediate_size": 8192,
    }
    limit = plain.get("max_position_embeddings", 131072)
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLMEagle3"],
        **sizes,
        **heads,
        "max_position_embeddings": limit,
    }


def parsed(parser, words):
    import contextlib
    import io

    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            return parser.parse_args(words), None
    except SystemExit:
        return None, told.getvalue()[-600:] or "the parser refuses it"


def saved(config, place):
    place.mkdir()
    (place / "config.json").write_text(json.dumps(with_class(config)))
    return str(place)


def main():
    sys.meta_path.insert(0, Stubs())
    start("h100")
    if sys.argv[1] == "keys":
        made = table(
            serve_parser(),
            "vLLM",
            "parser of `vllm serve` (vllm.entrypoints.launchers.cli_args.make_arg_parser), wheel vllm 0.32.0",
        )
    elif sys.argv[1] == "bench-keys":
        made = table(
            bench_parser(),
            "vllm bench serve",
            "parser of `vllm bench serve` (vllm.benchmarks.serve.add_cli_args), wheel vllm 0.32.0",
        )
        made["keys"]["--request-id-prefix"].pop("default")  # drawn in each process
        made["keys"]["--speed-bench-dataset-subset"]["choices"].sort()  # of a set
    elif sys.argv[1] == "router-keys":
        made = {
            **table(router_parser(), "vllm-router", "RouterArgs.add_cli_args, wheel vllm-router 0.1.16"),
            "version": "0.1.16",
        }
    else:
        parser = serve_parser()
        told_models()
        made = [check(case, parser) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(made))


if __name__ == "__main__":
    main()
