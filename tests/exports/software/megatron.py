"""Runs in the environment of `megatron.toml`: Megatron-LM's own parser, its validation of arguments, its model and
optimizer configs."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import re
import sys
import typing
import warnings
from unittest.mock import MagicMock, patch

import typing_extensions

del sys.path[0]  # this file has the name of the package
warnings.simplefilter("ignore")
typing.override = typing_extensions.override
sys.modules["megatron.core.transformer.moe.ops.paged_stash"] = MagicMock()

import torch  # noqa: E402
from megatron.core.package_info import __version__  # noqa: E402
from megatron.training import arguments  # noqa: E402

BLACKWELL = ("b200", "gb200", "b300", "gb300")


def parser() -> argparse.ArgumentParser:
    return arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))


def plain(value):
    name = getattr(value, "name", value)
    return name if isinstance(name, str | int | float | bool | list | None) else str(name)


def keys() -> dict:
    found = {}
    for action in parser()._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        if not names or names[0] == "--help":
            continue
        key = {"type": kind(action)}
        key |= {"choices": [plain(one) for one in action.choices]} if action.choices else {}
        key |= {"also": names[1:]} if names[1:] else {}
        default = plain(action.default)
        key |= {"default": default} if default is not None and key["type"] != "flag" else {}
        found[names[0]] = key
    return {
        "software": "Megatron-LM",
        "version": __version__,
        "source": "the argument parser of megatron-core",
        "keys": found,
    }


def kind(action) -> str:
    if action.nargs == 0:
        return "flag"
    if action.nargs in ("+", "*"):
        return "list"
    return {int: "int", float: "float"}.get(action.type, "str")


def check(case: dict) -> str | None:
    script = next(text for name, text in case["files"].items() if name.endswith(".sh"))
    each, nodes = (re.search(rf"--{name}[ =](\d+)", script) for name in ("nproc-per-node", "nnodes"))
    chip = re.search(r'"slice": "([a-z0-9]+)', script)
    arch = 10 if chip and chip[1].startswith(BLACKWELL) else 9
    env = {**case["env"], "WORLD_SIZE": str(int(each[1]) * (int(nodes[1]) if nodes else 1)), "RANK": "0"}
    env = {name: value for name, value in env.items() if name.isupper() and "$" not in value}
    fixed = (
        patch.dict(os.environ, env),
        patch.object(sys, "argv", case["words"]),
        patch.object(torch.cuda, "get_device_capability", lambda *_: (arch, 0)),
        patch.object(arguments, "get_device_arch_version", lambda: arch),
    )
    with contextlib.ExitStack() as stack, contextlib.redirect_stdout(io.StringIO()):
        for one in (*fixed, *te_there()):
            stack.enter_context(one)
        args = arguments.parse_args()
        arguments.validate_args(args)
        config(args)
    return None


def te_there():
    """Transformer Engine is on every machine that trains; here only its version is asked for."""
    from megatron.core import utils
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer import transformer_config
    from megatron.core.transformer.moe import moe_utils

    for module in (arguments, transformer_config, utils):
        yield patch.object(module, "is_te_min_version", lambda *_, **__: True)
    yield patch.object(rope_utils, "fused_apply_rotary_pos_emb", MagicMock())
    for name in (
        "permute",
        "permute_with_probs",
        "sort_chunks_by_index",
        "sort_chunks_by_index_with_probs",
        "unpermute",
    ):
        yield patch.object(moe_utils, f"fused_{name}", MagicMock())
    adam = MagicMock()
    adam.FusedAdam = fused_adam
    yield patch.dict(
        sys.modules,
        {
            "transformer_engine": MagicMock(),
            "transformer_engine.pytorch": MagicMock(),
            "transformer_engine.pytorch.optimizers": adam,
        },
    )


def fused_adam(master_weight_dtype, exp_avg_dtype, exp_avg_sq_dtype, use_decoupled_grad):
    """The parameters that Megatron looks for."""


def config(args) -> None:
    """The configs that are made of the arguments before anything is trained: of the model, the optimizer, gradients,
    microbatches."""
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator
    from megatron.core.optimizer import OptimizerConfig

    made = arguments.core_transformer_config_from_args(args)
    for kind_of in (OptimizerConfig, DistributedDataParallelConfig):
        kind_of(**{one.name: getattr(args, one.name) for one in dataclasses.fields(kind_of) if hasattr(args, one.name)})
    rounds = ConstantNumMicroBatchesCalculator(
        args.global_batch_size, args.micro_batch_size, args.data_parallel_size, False, 0
    )
    chunks = made.virtual_pipeline_model_parallel_size or 1
    if chunks > 1:
        group = made.microbatch_group_size_per_vp_stage
        left = rounds.get() % group
        assert group >= made.pipeline_model_parallel_size, group
        assert not 0 < left < made.pipeline_model_parallel_size, (rounds.get(), group)
    experts = args.expert_tensor_parallel_size * args.expert_model_parallel_size * args.pipeline_model_parallel_size
    assert args.world_size % experts == 0, f"world {args.world_size} over experts {experts}"
    instances = args.num_distributed_optimizer_instances
    assert args.data_parallel_size * args.context_parallel_size % instances == 0, instances
    assert args.world_size // experts % instances == 0, instances
    if args.num_experts and args.tensor_model_parallel_size > 1:
        assert args.sequence_parallel, "MoELayer.forward asks for sequence parallelism"
    if args.use_layer_wise_distributed_optimizer:
        assert instances == 1, "LayerWiseDistributedOptimizer has one instance"


def main() -> None:
    if sys.argv[1] == "keys":
        print("\x02" + json.dumps(keys()))
        return
    verdicts = []
    for case in json.load(sys.stdin):
        try:
            verdicts.append(check(case))
        except (Exception, SystemExit) as error:  # a verdict is whatever the software says
            verdicts.append(f"{type(error).__name__}: {error}"[:400])
    print("\x02" + json.dumps(verdicts))


if __name__ == "__main__":
    main()
