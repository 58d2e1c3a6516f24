"""Plans in the words of Megatron-LM and Megatron-Bridge: mappings that are easy to get wrong, what is refused, what
people write by hand."""

from dataclasses import replace
from typing import Any

import pytest

from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.keys import load_keys, read_flags
from dragonscale.exports.reading import read_plan
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.trainers import megatron, megatron_bridge
from dragonscale.models import load_model
from dragonscale.models.load import model_fields
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.plan.plan_file import TrainingFile, parse_plan


def _run(model: str, piece: str, plan: str, batch: int = 512, seq: int = 4096, **more: Any) -> TrainingRun:
    file = TrainingFile(
        parse_plan(plan), model=model, slice=piece, stack="megatron-core", batch=batch, seq=seq, tokens="1T"
    )
    return TrainingRun(replace(file, **more), load_model(model), model_fields(model), parse_slice(piece))


def _flags(run: TrainingRun) -> dict[str, Any]:
    return read_flags(load_keys("megatron"), megatron.write(run).programs[0].words[1:]).values


def _read(words: str, on: str = "h100:64", model: str = "") -> Imported:
    sizes = (
        "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
        "--num-query-groups 8"
    )
    return read_plan(f"torchrun pretrain_gpt.py {sizes} --swiglu --seq-length 8192 --bf16 {words}", Given(model, on))


@pytest.mark.parametrize(
    ("plan", "ep", "etp"),
    [
        ("fsdp=8,expert=2,tensor=4,zero=1", 8, 1),  # whole experts lie over tensor too
        ("fsdp=8,expert=2,tensor=4,zero=1,etp=true", 2, 4),
        ("fsdp=4,expert=2,context=4,tensor=2,zero=1,etp=true,fold=context", 8, 2),
        ("fsdp=4,expert=2,tensor=8,zero=1", 2, 8),  # eight experts are fewer than 2 x 8 ranks: they are sliced
    ],
)
def test_experts_over_ranks(plan: str, ep: int, etp: int) -> None:
    flags = _flags(_run("mixtral-8x7b", "h100:64", plan))
    assert (flags["--expert-model-parallel-size"], flags["--expert-tensor-parallel-size"]) == (str(ep), str(etp))


def test_experts_that_are_copied_over_context_lie_over_it_first() -> None:
    made = megatron.write(_run("qwen3-30b-a3b", "h100:64", "fsdp=2,expert=8,context=4,zero=1,context_by=ring"))
    assert made.as_run == parse_plan("fsdp=8,expert=2,context=4,zero=1,context_by=ring,fold=context")
    assert [one.setting for one in made.differences] == ["fold"]


def test_zero_and_its_copies() -> None:
    assert "--use-distributed-optimizer" not in _flags(_run("llama3-8b", "h100:64", "data=64,zero=0"))
    assert "--use-distributed-optimizer" not in _flags(_run("llama3-8b", "h100:64", "data=64"))  # nothing to shard
    hybrid = _flags(_run("llama3-8b", "h100:64", "data=8,fsdp=8,zero=3"))
    assert hybrid["--data-parallel-sharding-strategy"] == "optim_grads_params"
    assert (hybrid["--num-distributed-optimizer-instances"], hybrid["--ckpt-format"]) == ("8", "fsdp_dtensor")


def test_layers_that_do_not_divide_are_dealt_stage_by_stage() -> None:
    assert "--account-for-loss-in-pipeline-split" in _flags(
        _run("llama3.1-405b", "h100:64", "pipe=16,fsdp=4,zero=1,layout=ends")
    )
    dealt = _flags(_run("deepseek-v3", "h100:64", "pipe=16,fsdp=4,zero=1"))["--pipeline-model-parallel-layout"]
    assert dealt.startswith("Etttt|tttt|")
    assert dealt.endswith("|tttmL")  # the module for a further token is with the head
    assert (
        _flags(_run("llama3-8b", "h100:8", "pipe=4,fsdp=2,zero=1,layout=7-8-8-9"))[
            "--pipeline-model-parallel-layout"
        ].count("t")
        == 32
    )


def test_connections_are_those_that_its_own_check_asks_for() -> None:
    def env(piece: str, plan: str) -> str | None:
        return megatron.write(_run("llama3-8b", piece, plan)).programs[0].env.get("CUDA_DEVICE_MAX_CONNECTIONS")

    assert env("h100:8", "tensor=2,fsdp=4,zero=1") == "1"
    assert env("h100:8", "tensor=2,fsdp=4,zero=3") is None  # Megatron-FSDP refuses 1
    assert env("b200:8", "tensor=2,fsdp=4,zero=1") is None


@pytest.mark.parametrize(
    ("model", "plan", "why"),
    [
        ("gemma2-9b", "fsdp=8,zero=1", "capped"),
        ("llama3-8b", "fsdp=8,zero=1,optimizer=sgd", "takes Adam"),
        ("llama3-8b", "fsdp=8,zero=3,optimizer=muon", "zero=1"),
        ("llama3-8b", "data=2,fsdp=4,zero=1,optimizer=muon", "data=1,fsdp=8"),
        ("llama3-8b", "data=8,zero=0,offload=optimizer", "distributed optimizer"),
        ("mixtral-8x7b", "fsdp=4,tensor=2,zero=1,sequence=false", "sequence=true"),
        ("llama3-8b", "fsdp=2,tensor=2,pipe=2,zero=2", "pipeline"),
        ("gpt-oss-20b", "fsdp=4,tensor=2,zero=1,etp=true", "etp=false"),
        ("mistral-7b", "fsdp=2,context=4,zero=1,context_by=ring", "window"),
    ],
)
def test_what_its_own_checks_refuse(model: str, plan: str, why: str) -> None:
    with pytest.raises(Infeasible, match=why):
        megatron.write(_run(model, "h100:8", plan))


def test_selective_recompute_is_said_by_modules() -> None:
    made = megatron.write(_run("mixtral-8x7b", "h100:8", "expert=8,zero=1,remat=selective"))
    assert made.as_run is not None
    assert made.as_run.remat == "core_attn"


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        ("--tensor_model_parallel_size=4 --sequence-parallel", "data=16,tensor=4,zero=0"),
        ("--tensor-model-parallel-size 4", "data=16,tensor=4,zero=0,sequence=false"),
        (
            "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
            "data=16,pipe=4,virtual=4,zero=0,schedule=interleaved",
        ),
        (
            (
                "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 6 "
                "--decoder-last-pipeline-num-layers 6"
            ),
            "data=16,pipe=4,zero=0,layout=6-10-10-6",
        ),
        ("--recompute-activations --use-distributed-optimizer", "fsdp=64,zero=1,remat=core_attn"),
        ("--checkpoint-activations --zero-stage 1", "fsdp=64,zero=1,remat=block"),
        (
            "--activations-checkpoint-method uniform --model-parallel-size 2",
            "data=32,tensor=2,sequence=false,zero=0,remat=block",
        ),
        ("--zero-stage=0 --checkpoint-num-layers=1", "data=64,zero=0"),
        ("--zero-stage 2", "fsdp=64,zero=2"),
        (
            "--pipeline-model-parallel-size 4 --recompute-granularity full --recompute-method block "
            "--recompute-num-layers 5",
            "data=16,pipe=4,zero=0,remat=block:5",
        ),
        (
            "--pipeline-model-parallel-size 4 --recompute-granularity full --recompute-method block "
            "--recompute-num-layers 8",
            "data=16,pipe=4,zero=0,remat=block",
        ),
        ("--cpu-offloading-num-layers 20 --use-torch-fsdp2", "fsdp=64,zero=3,offload=activations:20"),
        ("--use-torch-fsdp2", "fsdp=64,zero=3"),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", "data=64,zero=0,dtype=mxfp8"),
        ("--context-parallel-size 4", "data=16,context=4,zero=0,context_by=ring"),
        ("--optimizer dist_muon", "fsdp=64,zero=1,optimizer=muon"),
        (
            "--optimizer-cpu-offload --use-distributed-optimizer --num-distributed-optimizer-instances 4",
            "data=4,fsdp=16,zero=1,offload=optimizer",
        ),
    ],
)
def test_what_people_write(words: str, plan: str) -> None:
    found = _read(words)
    assert found.file.plan == parse_plan(plan)
    assert found.file.model == "llama3-8b"
    assert (found.file.batch, found.file.seq) == (found.file.plan.replicas, 8192)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--tensor-model-parallel-size 3", "64 chips do not divide"),
        ("--tensor-model-parallel-size two", "whole number"),
        ("--global-batch-size 100", "does not divide"),
        ("--cp-comm-type ring --context-parallel-size 2", "p2p, all_gather, a2a"),
        ("--optimizer lion", "adam, sgd and muon"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|xL'", "E, t, m, L"),
        ("--expert-model-parallel-size 48", "does not fit"),
    ],
)
def test_bad_values_are_one_sentence(words: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        _read(words)


def test_what_is_not_said_is_asked_for() -> None:
    with pytest.raises(InputError, match="--model"):
        read_plan(
            "torchrun --nproc_per_node 8 pretrain_gpt.py --seq-length 4096 --micro-batch-size 1", Given(slice="h100:8")
        )
    with pytest.raises(InputError, match="--on"):
        read_plan(
            "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
            "--num-attention-heads 32 --seq-length 4096"
        )


def test_the_stack_is_read_from_the_flags() -> None:
    assert _read("").file.stack == "megatron-lm"
    assert _read("--moe-token-dispatcher-type alltoall").file.stack == "megatron-alltoall"


def test_a_model_of_no_preset_is_said_by_its_sizes() -> None:
    words = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --vocab-size 30000"
    assert (
        read_plan(f"pretrain_gpt.py {words}", Given(slice="h100:8")).file.model
        == "gpt3-175b?n_embd=1024&n_layer=24&n_head=16&vocab_size=30000"
    )


def test_a_recipe_is_python_that_says_the_plan() -> None:
    made = megatron_bridge.write(
        _run("gpt3-175b", "h100:64", "tensor=8,pipe=4,fsdp=2,zero=1,dtype=fp8,remat=block", seq=2048)
    )
    text = made.files[megatron_bridge.write_megatron_bridge.FILE]
    compile(text, "recipe.py", "exec")
    assert "GPTModelProvider(" in text  # there is no repository to build it from
    assert 'get_mixed_precision_config("bf16_with_fp8_current_scaling_mixed")' in text
    back = read_plan(text, Given(slice="h100:64"))
    assert back.file.plan == parse_plan("tensor=8,pipe=4,fsdp=2,zero=1,dtype=fp8,remat=block")
    assert back.file.model == "gpt3-175b"


SOME_LAYERS = [
    ("tensor=8,pipe=4,virtual=2,fsdp=2,zero=1,schedule=interleaved,remat=block:5", ("full", "block", "5")),
    ("fsdp=64,zero=3,offload=activations:20", (None, None, None)),
    ("fsdp=64,zero=1,remat=block", ("full", "uniform", "1")),
]


@pytest.mark.parametrize(("plan", "flags"), SOME_LAYERS)
@pytest.mark.parametrize("target", [megatron, megatron_bridge])
def test_layers_that_are_recomputed_or_offloaded_are_written_and_read(target, plan, flags) -> None:
    run = _run("llama3-70b", "gb200:64", plan)
    said = _flags(run)
    assert tuple(said.get(f"--recompute-{name}") for name in ("granularity", "method", "num-layers")) == flags
    made = target.write(run)
    files = {**made.files, "run.sh": " ".join(str(word) for word in made.programs[0].words)}
    text = files[megatron_bridge.write_megatron_bridge.FILE if target is megatron_bridge else "run.sh"]
    assert read_plan(text, Given("llama3-70b", "gb200:64")).file.plan == parse_plan(plan)
    assert ("NCCL_NET_GDR_C2C" in made.programs[0].env) == ("activations" in plan)
    if target is megatron_bridge:
        assert ("cpu_offloading = True" in text) == ("activations" in plan)
        unset = text.replace("cpu_offloading = True", "cpu_offloading = False")
        assert read_plan(unset, Given("llama3-70b", "gb200:64")).file.plan.offload == "none"


def test_a_recipe_that_was_edited_counts_as_it_is() -> None:
    text = megatron_bridge.write(_run("llama3-70b", "h100:64", "tensor=8,fsdp=8,zero=1")).files[
        megatron_bridge.write_megatron_bridge.FILE
    ]
    edited = text.replace("cfg.model.tensor_model_parallel_size = 8", "cfg.model.tensor_model_parallel_size = 4")
    assert read_plan(edited).file.plan.tensor == 4


def test_python_that_is_none_is_one_sentence() -> None:
    with pytest.raises(InputError, match="not Python"):
        read_plan("from megatron.bridge import AutoBridge\ncfg.model. = 3", Given(slice="h100:8"))


def test_steps_that_stand_in_for_unknown_tokens_are_no_tokens() -> None:
    text = megatron_bridge.write(_run("llama3-8b", "h100:8", "fsdp=8,zero=1", tokens="")).files[
        megatron_bridge.write_megatron_bridge.FILE
    ]
    assert read_plan(text).file.tokens == ""
    assert read_plan(text.replace("train_iters=100", "train_iters=10")).file.tokens == "20.97152M"


def test_what_changes_time_or_memory_is_told_with_what_is_judged() -> None:
    size = (
        "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --vocab-size 128256 "
        "--swiglu"
    )
    run = f"{size} --group-query-attention --num-query-groups 8 --seq-length 8192 --global-batch-size 128 --bf16"
    found = _read(
        f"{run} --rampup-batch-size 32 32 1000 --transformer-impl local --cuda-graph-impl none "
        "--attention-backend flash"
    )
    assert found.unplanned[:2] == (
        "--rampup-batch-size (the full batch is judged)",
        "--transformer-impl (kernels are counted as Transformer Engine's)",
    )
    assert not any("graph" in one or "attention" in one for one in found.unplanned)


@pytest.mark.parametrize(
    ("model", "plan", "expected"),
    [
        ("llama3-8b", "fsdp=8,zero=1", "cuda_graph_modules = []"),
        ("qwen3-30b-a3b", "expert=8,zero=1", "cuda_graph_modules = ['attn', 'moe_router', 'moe_preprocess']"),
        ("qwen3-30b-a3b", "expert=8,zero=1,remat=moe", "cuda_graph_modules = ['attn']"),
        ("llama3-8b", "fsdp=8,zero=1,remat=block", ""),
        ("llama3-8b", "fsdp=8,zero=1,remat=block:5", ""),
        ("llama3-8b", "fsdp=8,zero=1,offload=activations:5", ""),
        ("llama3-8b", "fsdp=8,zero=3", ""),
    ],
)
def test_bridge_records_the_graphs_that_its_stack_is_timed_with(model: str, plan: str, expected: str) -> None:
    run = _run(model, "h100:8", plan)
    written = megatron_bridge.write(replace(run, file=replace(run.file, stack="megatron-bridge")))
    text = written.files[megatron_bridge.write_megatron_bridge.FILE]
    assert expected in text
    assert ("cuda_graph_impl" in text) == bool(expected)
    assert any("CUDA graphs" in one.planned for one in written.differences) != bool(expected)
    assert ("NCCL_GRAPH_REGISTER" in written.programs[0].env) == bool(expected)


@pytest.mark.parametrize(("dtype", "layout", "recipe"), [("fp8", "hybrid", "tensorwise"), ("mxfp8", "e4m3", "mxfp8")])
def test_gradients_of_tensor_scaled_fp8_have_their_own_format(dtype: str, layout: str, recipe: str) -> None:
    """Transformer Engine's `hybrid`: e4m3 for weights and activations, e5m2 for gradients, which need its range. Blocks
    of MXFP8 are narrow enough for e4m3 in all three."""
    on = "h100:64" if dtype == "fp8" else "b200:64"
    flags = _flags(_run("llama3-8b", on, f"fsdp=64,zero=1,dtype={dtype}"))
    assert (flags["--fp8-format"], flags["--fp8-recipe"]) == (layout, recipe)
