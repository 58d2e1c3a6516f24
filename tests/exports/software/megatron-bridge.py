"""Runs in the environment of `megatron-bridge.toml`: the config classes of Megatron-Bridge, and the validation that
`pretrain` runs first."""

import contextlib
import dataclasses
import importlib.abc
import importlib.machinery
import io
import json
import os
import re
import sys
import types
import typing
import warnings
from unittest.mock import MagicMock, patch

import typing_extensions

del sys.path[0]  # a file there has the name of the package
warnings.simplefilter("ignore")
typing.override = typing_extensions.override
sys.modules["megatron.core.transformer.moe.ops.paged_stash"] = MagicMock()

import megatron  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from megatron.training import arguments  # noqa: E402

BLACKWELL = ("b200", "gb200", "b300", "gb300")
LISTS = ("bridge", "bridge.models", "bridge.recipes", "bridge.data")
"""Packages whose `__init__` imports every model: their modules are imported without it."""
STUBBED = (
    "megatron.energon",
    "megatron.bridge.data.builders",
    "megatron.bridge.data.sources",
    "megatron.bridge.models.megatron_mimo",
    "megatron.bridge.peft",
    "megatron.bridge.models.conversion",
    "megatron.bridge.models.hybrid",
    "megatron.bridge.models.t5",
    "megatron.bridge.training.gpt_step",
    "megatron.bridge.training.pretrain",
)
MISSING = ("transformers", "omegaconf", "yaml")


class Stub(types.ModuleType):
    """A module in which every name is an empty class."""

    __path__: typing.ClassVar[list[str]] = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, *_):
        if name.startswith(STUBBED) or name.split(".")[0] in MISSING:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


def library():
    """The library's config module."""
    sys.meta_path.insert(0, Stubs())
    root = next(place for place in megatron.__path__ if os.path.isdir(os.path.join(place, "bridge")))
    for name in LISTS:
        module = types.ModuleType(f"megatron.{name}")
        module.__path__ = [os.path.join(root, *name.split("."))]
        sys.modules[f"megatron.{name}"] = module
    from megatron.bridge.models import gpt_provider, mla_provider

    models = sys.modules["megatron.bridge.models"]
    models.GPTModelProvider, models.MLAModelProvider = gpt_provider.GPTModelProvider, mla_provider.MLAModelProvider
    models.T5ModelProvider = type("T5ModelProvider", (), {})
    sys.modules["megatron.bridge"].AutoBridge = FromHub
    from megatron.bridge.training import config

    return config


class FromHub:
    """A model that is built from the Hub, which is not at hand: sizes that any mesh divides."""

    @staticmethod
    def from_hf_pretrained(name):
        assert isinstance(name, str)
        return FromHub()

    def to_megatron_provider(self, **_):
        from megatron.bridge.models import GPTModelProvider

        made = GPTModelProvider(
            num_layers=2, hidden_size=65536, num_attention_heads=1024, add_bias_linear=False, vocab_size=1 << 20
        )
        made.bias_activation_fusion = made.apply_rope_fusion = False
        made.from_hub = True
        return made


def keys() -> dict:
    config = library()
    from megatron.bridge.models.mla_provider import MLAModelProvider
    from megatron.bridge.package_info import __version__
    from megatron.bridge.training.comm_overlap import CommOverlapConfig
    from megatron.bridge.training.mixed_precision import MixedPrecisionConfig

    made = {
        "model": MLAModelProvider,
        "train": config.TrainingConfig,
        "optimizer": config.OptimizerConfig,
        "ddp": config.DistributedDataParallelConfig,
        "validation": config.ValidationConfig,
        "scheduler": config.SchedulerConfig,
        "dataset": config.GPTDatasetConfig,
        "logger": config.LoggerConfig,
        "tokenizer": config.TokenizerConfig,
        "checkpoint": config.CheckpointConfig,
        "dist": config.DistributedInitConfig,
        "rng": config.RNGConfig,
        "comm_overlap": CommOverlapConfig,
        "mixed_precision": MixedPrecisionConfig,
    }
    found = {}
    for section, kind in made.items():
        for field in dataclasses.fields(kind):
            if not field.name.startswith("_"):
                found[f"{section}.{field.name}"] = key(field)
    return {
        "software": "Megatron-Bridge",
        "version": __version__,
        "source": "the dataclasses of ConfigContainer",
        "keys": found,
    }


def key(field) -> dict:
    text = str(field.type)
    inner = [one for one in (field.type, *typing.get_args(field.type)) if typing.get_origin(one) is typing.Literal]
    kind = next((name for name in ("bool", "int", "float") if re.search(rf"\b{name}\b", text)), "str")
    return {"type": kind} | ({"choices": list(typing.get_args(inner[0]))} if inner else {})


def check(case: dict, config) -> None:
    script = next(text for name, text in case["files"].items() if name.endswith(".sh"))
    text = next(text for name, text in case["files"].items() if name.endswith(".py"))
    each, nodes = (re.search(rf"--{name}[ =](\d+)", script) for name in ("nproc-per-node", "nnodes"))
    chip = re.search(r'"slice": "([a-z0-9]+)', script)
    world, arch = int(each[1]) * (int(nodes[1]) if nodes else 1), 10 if chip and chip[1].startswith(BLACKWELL) else 9
    env = {name: value for name, value in case["env"].items() if name.isupper() and "$" not in value}
    from megatron.bridge.training import flex_dispatcher_backend

    properties = types.SimpleNamespace(major=arch, minor=0, name=f"NVIDIA {(chip[1] if chip else 'h100').upper()}")
    fixed = (
        patch.dict(os.environ, env),
        patch.object(config, "get_world_size_safe", lambda: world),
        patch.object(torch.cuda, "get_device_capability", lambda *_: (arch, 0)),
        patch.object(torch.cuda, "get_device_properties", lambda *_: properties),
        patch.object(flex_dispatcher_backend.torch.cuda, "is_available", lambda: True),
    )
    with contextlib.ExitStack() as stack, contextlib.redirect_stdout(io.StringIO()):
        for one in (*fixed, *te_there()):
            stack.enter_context(one)
        scope = {"__name__": "recipe"}
        exec(compile(text, "recipe.py", "exec"), scope)  # the recipe itself, as Python runs it
        made = scope["config"]()
        if getattr(made.model, "from_hub", False):
            fit(made.model)
        if made.mixed_precision is not None:
            made.mixed_precision.finalize()
            made.mixed_precision.setup(made.model, made.optimizer, made.ddp)
        if made.comm_overlap is not None:
            made.data_parallel_size = made.get_data_parallel_size(world)
            made.comm_overlap.data_parallel_size = made.data_parallel_size
            made.comm_overlap.finalize()
            made.comm_overlap.setup(made.model, made.optimizer, made.ddp)
        made.validate()
        steps = made.train.global_batch_size / (made.train.micro_batch_size * made.data_parallel_size)
        assert steps == int(steps), "the batch does not divide"


def fit(model) -> None:
    """Layers and experts that the recipe's mesh divides, for a model whose sizes the Hub has."""
    layout = model.pipeline_model_parallel_layout
    chunks = model.pipeline_model_parallel_size * (model.virtual_pipeline_model_parallel_size or 1)
    ends = model.account_for_embedding_in_pipeline_split + model.account_for_loss_in_pipeline_split
    model.num_layers = layout.count("t") if layout else 4 * chunks - ends
    if layout and "m" in layout:
        model.mtp_num_layers = layout.count("m")
    if model.moe_token_dispatcher_type != "allgather":
        model.num_moe_experts, model.moe_ffn_hidden_size = 4 * model.expert_model_parallel_size, 65536
    if "mla_up_proj" in (model.recompute_modules or []):
        model.multi_latent_attention = True


def te_there():
    """Transformer Engine is on every machine that trains; here only its version is asked for."""
    from megatron.bridge.training import mixed_precision
    from megatron.core import utils
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer import transformer_config
    from megatron.core.transformer.moe import moe_utils

    for module in (arguments, transformer_config, utils, mixed_precision):
        yield patch.object(module, "is_te_min_version", lambda *_, **__: True)
    yield patch.object(rope_utils, "fused_apply_rotary_pos_emb", MagicMock())
    names = ("permute", "permute_with_probs", "sort_chunks_by_index", "sort_chunks_by_index_with_probs", "unpermute")
    for name in names:
        yield patch.object(moe_utils, f"fused_{name}", MagicMock())
    adam = MagicMock()
    adam.FusedAdam = fused_adam
    parts = ("transformer_engine", "transformer_engine.pytorch")
    yield patch.dict(sys.modules, dict.fromkeys(parts, MagicMock()) | {"transformer_engine.pytorch.optimizers": adam})


def fused_adam(master_weight_dtype, exp_avg_dtype, exp_avg_sq_dtype, use_decoupled_grad):
    """The parameters that Megatron looks for."""


def main() -> None:
    if sys.argv[1] == "keys":
        print("\x02" + json.dumps(keys()))
        return
    config, verdicts = library(), []
    for case in json.load(sys.stdin):
        try:
            verdicts.append(check(case, config))
        except (Exception, SystemExit) as error:  # a verdict is whatever the software says
            verdicts.append(f"{type(error).__name__}: {error}"[:400])
    print("\x02" + json.dumps(verdicts))


if __name__ == "__main__":
    main()
