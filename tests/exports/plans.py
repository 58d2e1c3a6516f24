"""Plans to export in tests: legal plans of presets, drawn for the stack or the engine of a target.

`training_plans(target)` and `serving_plans(target)` give (plan file, words) pairs small enough to export quickly. They
never search: a plan is written down, judged once by the export, and kept where it is legal and fits.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.exports.target import TARGETS, Target

# (model, slice, batch in sequences, tokens of a sequence, plan); which of them a target runs is for its stack to say.
TRAINING: tuple[tuple[str, str, int, int, str], ...] = (
    ("llama3-8b", "h100:8", 64, 8192, "fsdp=8,zero=3,remat=block"),
    ("llama3-8b", "h100:64", 512, 8192, "fsdp=64,zero=2"),
    ("llama3-8b", "h100:64", 512, 8192, "data=8,fsdp=8,zero=3,remat=block"),
    ("llama3-8b", "h100:64", 512, 8192, "fsdp=32,tensor=2,zero=1,remat=selective"),
    ("llama3-70b", "h100:512", 512, 8192, "fsdp=16,tensor=8,pipe=4,zero=1,remat=block,schedule=1f1b"),
    (
        "llama3-70b",
        "h100:512",
        512,
        8192,
        "fsdp=16,tensor=8,pipe=4,virtual=5,zero=1,schedule=interleaved,remat=selective",
    ),
    ("llama3-70b", "h100:512", 512, 8192, "fsdp=64,tensor=8,zero=3,remat=block"),
    ("llama3-8b", "h100:64", 32, 131072, "fsdp=4,tensor=2,context=8,zero=1,remat=block,context_by=ring"),
    ("llama3-8b", "h100:64", 32, 131072, "fsdp=4,tensor=2,context=8,zero=3,remat=block,context_by=gather"),
    ("llama3-8b", "h100:16", 128, 4096, "fsdp=16,zero=2,dtype=fp8"),
    ("mixtral-8x7b", "h100:64", 256, 4096, "fsdp=8,expert=8,zero=1,remat=block"),
    ("mixtral-8x7b", "h100:128", 256, 4096, "fsdp=8,expert=2,tensor=4,pipe=2,zero=1,remat=selective,schedule=1f1b"),
    ("deepseek-v3", "h100:1024", 4096, 4096, "fsdp=8,expert=8,pipe=16,zero=1,remat=block,schedule=1f1b"),
    ("qwen3-30b-a3b", "h100:32", 256, 4096, "fsdp=4,expert=8,zero=3,remat=block"),
    ("qwen3-8b", "b200:8", 64, 8192, "fsdp=8,zero=1,remat=none"),
    ("gemma2-9b", "h100:16", 64, 4096, "fsdp=16,zero=3,remat=block"),
    ("llama3-8b", "mi300x:8", 64, 8192, "fsdp=8,zero=3,remat=block"),
    ("llama3-8b", "v5p:4x4x4", 512, 8192, "fsdp=64,zero=3,remat=block"),
    ("llama3-70b", "v5p:8x8x8", 1024, 8192, "fsdp=128,tensor=4,zero=3,remat=block,etp=true"),
    ("llama3-70b", "v5p:8x8x8*2", 2048, 8192, "data=2,fsdp=128,tensor=4,zero=3,remat=block,etp=true"),
    ("mixtral-8x7b", "v5p:4x4x8", 512, 4096, "fsdp=16,expert=8,zero=3,remat=block,etp=true"),
    ("llama3-8b", "v6e:8x8", 256, 8192, "fsdp=64,zero=3,remat=block"),
    ("llama3-8b", "v6e:8x8", 64, 32768, "fsdp=16,context=4,zero=3,remat=block"),
    ("llama3-8b", "h100:16", 64, 8192, "fsdp=16,zero=3,remat=block,optimizer=adam-bf16"),
    ("llama3-70b", "gb200:64", 256, 8192, "fsdp=8,tensor=4,pipe=2,zero=1,remat=none,schedule=1f1b"),
    ("llama3.1-405b", "h100:4096", 2048, 8192, "fsdp=32,tensor=8,pipe=16,zero=1,remat=block,schedule=1f1b,layout=ends"),
    # stages, experts and formats as torchtitan has them
    (
        "llama3-70b",
        "h100:512",
        512,
        8192,
        "fsdp=16,tensor=8,pipe=4,virtual=5,zero=2,schedule=interleaved,remat=selective",
    ),
    ("llama3-70b", "h100:256", 512, 8192, "fsdp=8,tensor=8,pipe=4,zero=3,schedule=zbv,remat=block"),
    ("llama3-70b", "h100:256", 512, 8192, "fsdp=8,tensor=8,pipe=4,zero=2,schedule=dualpipev,remat=block"),
    ("llama3-70b", "h100:256", 512, 8192, "fsdp=8,tensor=8,pipe=4,zero=2,schedule=zb-h1,remat=block"),
    (
        "llama3-70b",
        "h100:256",
        512,
        8192,
        "fsdp=8,tensor=8,pipe=4,zero=2,schedule=gpipe,remat=block,layout=18-21-21-20",
    ),
    ("llama3.1-405b", "h100:4096", 2048, 8192, "fsdp=32,tensor=8,pipe=16,zero=2,remat=block,schedule=1f1b,layout=ends"),
    ("llama3.1-405b", "h100:1024", 512, 8192, "fsdp=128,tensor=8,zero=3,remat=block,dtype=fp8"),
    ("llama3-8b", "b200:8", 64, 8192, "fsdp=8,zero=3,remat=selective,dtype=mxfp8"),
    ("llama3-8b?num_hidden_layers=16", "h100:8", 64, 8192, "data=2,fsdp=4,zero=2,remat=none,microbatch=2"),
    ("llama2-7b", "h100:8", 64, 4096, "fsdp=4,tensor=2,zero=3,remat=block,sequence=false"),
    ("qwen3-8b", "h100:16", 64, 8192, "fsdp=16,zero=3,remat=block,optimizer=adam-bf16"),
    ("qwen3-30b-a3b", "h100:64", 256, 4096, "fsdp=4,expert=4,tensor=4,zero=3,remat=block"),
    ("qwen3-30b-a3b", "h100:64", 64, 16384, "fsdp=8,expert=2,context=4,zero=3,remat=block,fold=context"),
    ("qwen3-30b-a3b", "h100:64", 64, 16384, "fsdp=4,expert=4,context=4,zero=3,remat=block"),
    ("deepseek-v3", "h200:1024", 4096, 4096, "fsdp=2,expert=32,pipe=16,zero=2,remat=block,schedule=1f1b"),
    ("gpt-oss-120b", "h200:64", 128, 16384, "fsdp=2,expert=8,context=4,zero=3,remat=block,fold=context"),
    # what the Trainer runs: replicas alone, tensor ranks under FSDP, optimizers of eight bits, Ulysses
    ("llama3.2-1b", "h100:8", 64, 4096, "data=8,remat=block"),
    ("llama3-8b", "h100:16", 64, 4096, "data=2,fsdp=4,tensor=2,zero=3,remat=block,sequence=false"),
    ("llama3-8b", "h100:16", 64, 4096, "fsdp=16,zero=2,remat=block,optimizer=adam8"),
    ("llama3-8b", "h100:16", 64, 16384, "fsdp=8,context=2,zero=3,remat=block,context_by=ulysses"),
    (
        "llama3-8b?num_hidden_layers=16",
        "h100:8",
        64,
        4096,
        "fsdp=8,zero=3,remat=block,optimizer=adafactor,microbatch=2",
    ),
    ("llama3-70b", "h100:64", 128, 8192, "fsdp=8,tensor=8,zero=1,remat=block,optimizer=adam-bf16,offload=optimizer"),
    (
        "qwen3-30b-a3b",
        "h100:64",
        256,
        4096,
        "fsdp=4,expert=4,tensor=4,zero=1,remat=layernorm+moe_act,optimizer=adam-bf16",
    ),
    ("gpt-oss-20b", "b200:16", 128, 4096, "fsdp=2,expert=8,zero=1,remat=none,dtype=mxfp8"),
)
# (model, slice of a replica, plan, further words of a plan file)
SERVING: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("llama3-8b", "h100:1", "tensor=1", {"batch": 64}),
    ("llama3-70b", "h100:4", "tensor=4", {"batch": 93, "replicas": 2}),
    ("llama3-70b", "h100:8", "tensor=8,weights=fp8,compute=fp8,kv=fp8", {"batch": 128}),
    (
        "llama3-70b",
        "h200:8",
        "tensor=8,kv=fp8",
        {"batch": 256, "launch": {"token_budget": 4096, "memory_fraction": 0.85}},
    ),
    ("llama3-70b", "h100:16", "tensor=8,pipe=2", {"batch": 64}),
    ("llama3.1-8b", "a100:2", "tensor=2,weights=int4", {"batch": 32}),
    ("llama3-8b", "h100:1", "tensor=1", {"batch": 8, "speculation": {"drafts": 3, "acceptance": "0.7"}}),
    (
        "llama3-70b",
        "h100:8",
        "tensor=8",
        {"batch": 16, "speculation": {"drafts": 4, "acceptance": "0.7", "draft": "llama3.2-1b"}},
    ),
    ("mixtral-8x7b", "h100:4", "tensor=4,expert=4", {"batch": 64}),
    ("mixtral-8x7b", "h100:4", "tensor=4", {"batch": 64}),
    ("qwen3-235b-a22b", "h200:8", "tensor=8,expert=8", {"batch": 64}),
    ("deepseek-v3", "h200:8", "tensor=8,weights=fp8,compute=fp8_block", {"batch": 64}),
    ("deepseek-v3", "h200:16", "data=16,expert=16,weights=fp8,compute=fp8_block", {"batch": 512}),
    ("gpt-oss-120b", "h100:2", "tensor=2,weights=mxfp4", {"batch": 64}),
    ("llama3-70b", "mi300x:4", "tensor=4", {"batch": 64}),
    ("llama3-70b", "b200:4", "tensor=4,weights=nvfp4,compute=nvfp4,kv=fp8", {"batch": 256}),
    (
        "llama3-70b",
        "h100:8",
        "tensor=8",
        {"batch": 64, "replicas": 3, "prefill": {"slice": "h100:8", "plan": "tensor=8", "replicas": 2}},
    ),
    ("llama3-8b", "v6e:2x2", "tensor=4", {"batch": 64}),
    ("llama3-70b", "v6e:2x4", "tensor=8", {"batch": 32}),
    ("llama3-70b", "v6e:4x4", "tensor=16,weights=int8,compute=int8", {"batch": 64}),
    ("qwen3-30b-a3b", "tpu7x:2x2x1", "tensor=4,expert=4", {"batch": 64}),
    ("llama3-8b", "rtx4090:1", "tensor=1,weights=int4", {"batch": 4}),
    ("qwen3-30b-a3b", "v6e:2x4", "tensor=2,data=4,expert=8", {"batch": 64}),
    (
        "llama3-8b",
        "v6e:2x2",
        "tensor=4",
        {"batch": 32, "replicas": 2, "prefill": {"slice": "v6e:2x2", "plan": "tensor=4", "replicas": 1}},
    ),
    ("llama3-70b", "h100:16", "tensor=16,spread=sequence", {"batch": 64}),
    ("qwen3-235b-a22b", "h200:8", "tensor=2,data=4,expert=8,kv=fp8", {"batch": 256}),
    (
        "deepseek-v3",
        "h200:8",
        "data=8,expert=8,weights=fp8,compute=fp8_block",
        {"batch": 128, "speculation": {"drafts": 2, "acceptance": "0.8"}},
    ),
    (
        "deepseek-v3",
        "h200:16",
        "data=16,expert=16,weights=fp8,compute=fp8_block",
        {
            "batch": 1024,
            "prefill": {"slice": "h200:16", "plan": "data=16,expert=16,weights=fp8,compute=fp8_block", "replicas": 2},
        },
    ),
    ("qwen3-235b-a22b", "b200:8", "data=8,expert=8", {"batch": 256}),
    ("deepseek-v3", "mi300x:8", "data=8,expert=8,weights=fp8,compute=fp8_block", {"batch": 128}),
)
TRAFFIC = {"prompt": 1024, "output": 256}


def plan_files(target: Target, folder: Path) -> list[Path]:
    """The plan files that a target may be given, written into a folder."""
    from dragonscale.serving.engine.plan_file import TABLES, read_serving_plan, save_serving_plan
    from dragonscale.training.plan.plan_file import TrainingFile, parse_plan, save_training_file

    found: list[Path] = []
    if target.kind == "training":
        for place, (model, piece, batch, seq, plan) in enumerate(TRAINING):
            path = folder / f"train{place}.toml"
            save_training_file(
                TrainingFile(parse_plan(plan), model=model, slice=piece, batch=batch, seq=seq, tokens="1T"), path
            )
            found.append(path)
        return found
    for place, (model, piece, plan, more) in enumerate(SERVING):
        path = folder / f"serve{place}.toml"
        tables = {name: TABLES[name](**value) for name, value in more.items() if isinstance(value, dict)}
        tables.setdefault("traffic", TABLES["traffic"](**TRAFFIC))
        counts = {name: value for name, value in more.items() if not isinstance(value, dict)}
        saved = replace(read_serving_plan(plan), model=model, slice=piece, **counts, **tables)
        save_serving_plan(saved, str(path))
        found.append(path)
    return found


def exports_of(target: Target, folder: Path) -> Iterator[tuple[Path, Any]]:
    """Every plan that a target takes, exported; those that its software refuses are left out."""
    for path in plan_files(target, folder):
        try:
            made = ds.export(
                str(path), to=target.name if target.kind != "load" else f"{_against(target)},{target.name}"
            )
        except InputError:
            continue
        yield path, made


def _against(load: Target) -> str:
    """The engine that a load generator comes with, or the first."""
    return "sglang" if load.name.startswith("sglang") else "vllm"


def _worker_scripts(files: dict[str, str]) -> list[str]:
    """The commands of the containers of a deployment."""
    import yaml

    from dragonscale.exports.engines.dynamo import workers

    tables = [one for text in files.values() for one in yaml.safe_load_all(text) if isinstance(one, dict)]
    return [worker.inside.script for table in tables for worker in workers(table)]


def cases_for(name: str) -> list[dict[str, Any]]:
    """What a software's own parser is shown: the words of each program and the files of each export."""
    import tempfile

    from dragonscale.exports.keys import load_keys
    from dragonscale.exports.shell import read_commands
    from dragonscale.models.load import model_fields
    from tools.software import specs

    load_keys(name)
    cases = [*_rl_cases(name)]
    targets = [
        target
        for target in TARGETS.values()
        if (target.keys or target.name) in (name, name.removesuffix("-router")) and target.kind != "launcher"
    ]
    with tempfile.TemporaryDirectory() as place:
        for target in targets:
            for path, made in exports_of(target, Path(place)):
                scripts = [text for file, text in made.files.items() if file.endswith(".sh")]
                scripts += _worker_scripts(made.files) if target.name == "dynamo" else []
                for text in scripts:
                    for command in read_commands(text):
                        routes = (
                            any("router" in word for word in command.words[:3]) and f"{target.name}-router" in specs()
                        )
                        if command.words[0] not in ("set", "cd", "export") and routes == name.endswith("-router"):
                            case = {
                                "name": f"{target.name} {path.name}: {made.model} {made.plan}",
                                "words": command.words,
                                "files": made.files,
                            }
                            if target.kind != "training":
                                case |= {"config": model_fields(made.model), "chip": made.slice.partition(":")[0]}
                            cases.append({**case, "env": command.env, "parameters": _parameters(path, target)})
    return cases


def _rl_cases(name: str) -> Iterator[dict[str, Any]]:
    """Commands of a framework of reinforcement learning, of runs and of what a search recommends."""
    from dragonscale.exports.rl.rl_commands import target_of, targets
    from dragonscale.exports.shell import read_commands
    from tests.exports.rl_runs import RUNS, script

    frameworks = {target_of(one).keys or one: one for one in targets()}
    for run in RUNS:
        if run.stack == frameworks.get(name):
            for command in read_commands(script(run)):
                yield {"name": f"{run.stack} {run.mode}: {run.train}", "words": command.words}


def _parameters(path: Path, target: Target) -> int:
    """Parameters of the model of a training plan, for trainers that can count theirs."""
    from dragonscale.models import load_model
    from dragonscale.models.transformer import count_parameters
    from dragonscale.training.plan.plan_file import load_training_file

    return count_parameters(load_model(load_training_file(path).model)).total if target.kind == "training" else 0
