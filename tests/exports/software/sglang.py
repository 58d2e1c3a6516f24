"""SGLang's own parser, and the resolution and checks that a server makes of its arguments, on a machine without a GPU.

`keys` prints the names of `sglang.launch_server`; `check` parses each command, resolves it (`ServerArgs.resolve_once`:
parallelism, attention and MoE backends, speculation, disaggregation, CUDA graphs) for the model's `config.json`, and
runs `check_server_args`, with the platform told which GPU it is on.
"""

import argparse
import importlib.abc
import importlib.machinery
import json
import logging
import os
import sys
import tempfile
import types
from pathlib import Path

from _flags import names_of, parsed, told

sys.path.pop(0)  # this file has the name of the package
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", CUDA_HOME="/nowhere")
logging.disable(logging.WARNING)
GPUS = {  # capability, and MiB as nvidia-smi counts them
    "h100": (9, 0, 81559),
    "h200": (9, 0, 143771),
    "a100": (8, 0, 81920),
    "b200": (10, 0, 183359),
    "gb200": (10, 0, 189471),
    "l40s": (8, 9, 46068),
    "rtx4090": (8, 9, 24564),
    "mi300x": (9, 4, 196592),
    "mi355x": (9, 5, 294896),
}


class Thing(type):
    """What stands for whatever is looked up in a module that is not there."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Absent(metaclass=Thing):
    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return self


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of kernels, grammars and pictures that are imported and not used before weights are loaded."""

    NAMES = (
        "torchvision",
        "sgl_kernel",
        "flashinfer",
        "compressed_tensors",
        "gguf",
        "torchao",
        "soundfile",
        "timm",
        "xgrammar",
        "decord",
        "deep_gemm",
        "deep_ep",
        "numba",
        "cutlass",
        "tilelang",
        "quack",
        "tvm_ffi",
        "sentencepiece",
        "mori",
        "aiter",
        "datasets",
        "modelscope",
        "kernels",
    )

    def find_spec(self, name, _, __=None):
        found = name.split(".")[0] in self.NAMES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if found else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: Absent if not name.startswith("__") else _missing(name)
        return module

    def exec_module(self, module):
        pass


def _missing(name):
    raise AttributeError(name)


def prepared():
    """SGLang's modules, imported with stubs."""
    import torch
    from transformers import AutoImageProcessor, AutoModel, AutoProcessor, AutoTokenizer  # noqa: F401  before the stubs

    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_name = lambda *_: "NVIDIA H100"
    torch.version.cuda = "13.0"
    sys.meta_path.insert(0, Stubs())
    from sglang.srt.server_args import ServerArgs

    return ServerArgs


def placed(chip):
    """The platform's facts on a chip: what SGLang's probes would find."""
    import sglang.srt.arg_groups.memory_hook as memory
    import torch

    major, minor, mib = GPUS.get(chip, GPUS["h100"])
    amd = chip.startswith("mi")
    facts = {
        "is_cuda": not amd,
        "is_hip": amd,
        "is_sm90": not amd and major == 9,
        "is_sm100": major == 10,
        "is_blackwell": major == 10,
        "is_sm100_or_sm110": major == 10,
        "is_sm110": False,
        "is_sm120": False,
        "is_hopper_with_cuda_12_3": not amd and major == 9,
        "has_flashinfer": not amd,
        "device_sm": major * 10 + minor,
        "device_capability": (major, minor),
    }
    torch.cuda.get_device_capability = lambda *_: (major, minor)
    memory.get_device_memory_capacity = lambda *_: mib
    return facts


def with_class(fields):
    """A model's config with the class that transformers has for its type, as a checkpoint's has it."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as known

    inner = fields.get("text_config", {})
    kind = fields.get("model_type", "")
    named = known.get(kind) or known.get(inner.get("model_type", "")) or "LlamaForCausalLM"
    return {"architectures": [named if isinstance(named, str) else named[0]], **fields}


def parser_of(server):
    parser = argparse.ArgumentParser(prog="sglang", allow_abbrev=False)
    server.add_cli_args(parser)
    return parser


def server_words(words):
    """The words after `python -m sglang.launch_server` or `sglang serve`."""
    start = next(at for at, word in enumerate(words) if word in ("sglang.launch_server", "serve"))
    rest = list(words[start + 1 :])
    return ["--model-path", *rest] if rest and not rest[0].startswith("-") else rest


def checked(server, case):
    """Nothing, or why SGLang would not start."""
    from sglang.srt.runtime_context import override_platform

    words = [
        word.replace("$NODE_RANK", "0").replace("$MASTER_ADDR", "10.0.0.1") for word in server_words(case["words"])
    ]
    os.environ.update({name: value for name, value in case.get("env", {}).items() if name.startswith("SGLANG_")})
    facts = placed(case.get("chip", "h100"))
    with tempfile.TemporaryDirectory() as place, override_platform(**facts):
        for flag, fields in (
            ("--model-path", case["config"]),
            ("--speculative-draft-model-path", case.get("draft") or case["config"]),
        ):
            if flag in words:
                folder = Path(place, flag.strip("-"))
                folder.mkdir()
                (folder / "config.json").write_text(json.dumps(with_class(fields)), encoding="utf-8")
                words[words.index(flag) + 1] = str(folder)
        try:
            made = server.from_cli_args(parsed(parser_of(server), words))
            made.resolve_once()
            made.check_server_args()
        except (
            AssertionError,
            ValueError,
            TypeError,
            KeyError,
            NotImplementedError,
            RuntimeError,
            AttributeError,
        ) as error:
            return f"{type(error).__name__}: {error}"
    return None


def main():
    server = prepared()
    if sys.argv[1] == "keys":
        from importlib.metadata import version

        source = "sglang.srt.server_args.ServerArgs.add_cli_args of the package's own wheel"
        kinds = {"human_readable_int": "int"}
        told(
            {
                "software": "SGLang",
                "version": version("sglang"),
                "source": source,
                "keys": names_of(parser_of(server), kinds),
            }
        )
        return
    told([checked(server, case) for case in json.load(sys.stdin)])


if __name__ == "__main__":
    main()
