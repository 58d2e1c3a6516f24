"""A model's path may hold anything that a file system takes. Whatever exports write is run here with stand-ins: none of
it runs what the path says, and the software gets the path as one word."""

import ast
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.commands.export.ask_export import launched
from dragonscale.exports.loads import write_load
from dragonscale.exports.runs import Run
from dragonscale.exports.target import Target, of_kind, target_named
from dragonscale.exports.written import LEADER, expansion, filled, quoted
from dragonscale.faces.cli import main
from dragonscale.models.load import model_fields
from tests.exports.manifests import manifests, sky_task
from tests.exports.stand_ins import GPUS, Started, environment, run_containers, run_script, toml_text
from tests.exports.written_runs import serving_run, training_run, written

RUNS = "$(touch X)`touch X`;touch X;'touch X'\"\";touch X\n touch X\ntouch X #\\\u2028touch: X\x85touch: X"
"""What makes the file X wherever a shell, YAML or a comment lets it."""
MARKS = "{rank} {leader} {hosts} decode-0:8002 --port $(HF_TOKEN) $$ $HOME ${IFS} ~ %x <<E >x & | =trtllm.yaml"
"""What launchers and Kubernetes fill in, when it is theirs."""
NAME = f"a {RUNS} {MARKS} z?"
LAUNCHERS = [one.name for one in of_kind("launcher")]
GPU, TPU = ("h100:2", "tensor=2"), ("v6e:2x2", "tensor=4")
ENGINES = {"vllm-tpu": TPU, "sgl-jax": TPU}
TRAINERS = {
    "megatron": "fsdp=8,tensor=2,zero=1,remat=block",
    "megatron-bridge": "fsdp=8,tensor=2,zero=1,remat=block",
    "maxtext": "fsdp=16,zero=3,remat=block",
}
GETS = {"vllm", "vllm-tpu", "sglang", "sgl-jax", "trtllm", "dynamo", "llm-d", "deepspeed"}
"""Software that is given the path in its words; others have it in their files, or need only what config.json says."""


def model_folder(folder: Path, **changes: int) -> str:
    """A folder with the config of a model."""
    folder.mkdir(parents=True)
    ours = ("name", "source", "parameters", "aliases", "checkpoint")
    fields = {name: value for name, value in model_fields("llama3-8b").items() if name not in ours}
    (folder / "config.json").write_text(json.dumps({**fields, **changes}))
    return str(folder)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return model_folder(tmp_path / "models" / NAME)


def by_launcher(target: Target, run: Run) -> Iterator[tuple[str, dict[str, str]]]:
    """The files for each launcher, or for none where a target needs none."""
    run, made = written(target, run)
    for name in LAUNCHERS if made.programs else [""]:
        yield name, dict(launched(run, target, target_named(name) if name else None, made).files)


def started(launcher: str, files: dict[str, str], folder: Path, hosts: int = 8) -> list[Started]:
    """What the files of a launcher start."""
    for name, text in files.items():
        (folder / name).write_text(text)
    env = environment(HF_TOKEN="secret", CUDA_VISIBLE_DEVICES=GPUS)
    found: list[Started] = []
    for name, text in files.items():
        if name.endswith(".k8s.yaml"):
            manifests(text)
            found += run_containers(text, folder, **env)
        elif name.endswith(".sky.yaml"):
            found += run_script(sky_task(text)["run"], folder, 1, **env)
        elif name.endswith((".sh", ".sbatch")) and not name.endswith("-host.sh"):
            found += run_script(text, folder, hosts, **env)
    assert found, launcher
    return found


def check(target: Target, run: Run, model: str, tmp_path: Path, hosts: int = 8) -> int:
    """Every launcher's files run: nothing of the path is run, and whoever gets it gets all of it."""
    seen = 0
    for launcher, files in by_launcher(target, run):
        folder = tmp_path / f"run-{launcher}"
        folder.mkdir()
        processes = started(launcher, files, folder, hosts)
        assert not list(tmp_path.rglob("X")), (target.name, launcher)
        engines = [one for one in processes if "router" not in str(one.words) and "bootstrap" not in str(one.words)]
        for one in engines if target.name in GETS else ():
            assert model in one.words or {"disaggregated", "dynamo.frontend"} & {*one.words}, (
                target.name,
                launcher,
                one.words,
            )
        seen += 1
    return seen


@pytest.mark.parametrize("target", of_kind("serving"), ids=lambda one: one.name)
def test_an_engine_gets_the_path_and_runs_nothing_of_it(target: Target, model: str, tmp_path: Path) -> None:
    run = serving_run(target.runs[0], model, *ENGINES.get(target.name, GPU), replicas=2)
    assert check(target, run, model, tmp_path) == (1 if target.name in ("dynamo", "llm-d") else len(LAUNCHERS))


# torchtune has builders of known models alone, which no path is
@pytest.mark.parametrize(
    "target", [one for one in of_kind("training") if one.name != "torchtune"], ids=lambda one: one.name
)
def test_a_trainer_runs_nothing_of_the_path(target: Target, model: str, tmp_path: Path) -> None:
    plan, on = TRAINERS.get(target.name, "fsdp=16,zero=3,remat=block"), "h100:16"
    if target.name == "swift":  # which starts the processes of one host
        plan, on = "fsdp=8,zero=3,remat=block", "h100:8"
    run = training_run(target.runs[0], model, plan, on)
    assert check(target, run, model, tmp_path) == len(LAUNCHERS)
    for name, text in written(target, run)[1].files.items():
        if name.endswith(".py"):
            assert model in strings(text), name
        elif name == "training_args.json":
            assert json.loads(text)["config_name"] == model


def strings(program: str) -> list[str]:
    """The strings of a Python program, of which none is a line of its own."""
    tree = ast.parse(program)
    assert not [node for node in tree.body if isinstance(node, ast.Expr)]
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_a_program_that_is_written_has_names_as_strings(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "models" / NAME, num_hidden_layers=16)  # no flavor of torchtitan's
    run = training_run("torchtitan", model, "fsdp=16,zero=3,remat=block")
    hostile = replace(run, model=replace(run.model, name=f'"); import os; os.system("touch X"); ("{NAME}'))
    (text,) = written(target_named("torchtitan"), hostile)[1].files.values()
    assert hostile.model.name in strings(text)
    assert "import os\n" not in ast.unparse(ast.parse(text))


def test_text_beside_an_expansion_is_not_expanded(tmp_path: Path) -> None:
    word = filled(NAME + LEADER + NAME, {LEADER: expansion("$(echo node)")})
    (one,) = run_script(f"vllm {quoted(word)}", tmp_path, **environment())
    assert one.words == ["vllm", f"{NAME}node{NAME}"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_pools_find_each_other_and_leave_the_path_alone(engine: str, model: str, tmp_path: Path) -> None:
    run = serving_run(engine, model, "h100:8", "tensor=8", pool=True)
    assert check(target_named(engine), run, model, tmp_path) == len(LAUNCHERS)


def test_replicas_of_several_hosts_leave_the_path_alone(model: str, tmp_path: Path) -> None:
    run = serving_run("vllm", model, "h100:16", "tensor=8,pipe=2", replicas=2)
    assert check(target_named("vllm"), run, model, tmp_path) == len(LAUNCHERS)


def test_the_script_of_a_tpu_host_leaves_the_path_alone(model: str, tmp_path: Path) -> None:
    _, made = written(target_named("vllm-tpu"), serving_run("vllm-tpu", model, "v6e:4x4", "tensor=4,data=4"))
    (name,) = made.files  # a script of its own starts Ray first
    (tmp_path / name).write_text(made.files[name])
    head, serve = run_script(f"bash {name} 0 first", tmp_path, **environment())
    assert (head.words[0], serve.words[:3]) == ("ray", ["vllm", "serve", model])
    assert not list(tmp_path.rglob("X"))


@pytest.mark.parametrize("load", of_kind("load"), ids=lambda one: one.name)
def test_a_load_test_gets_the_path(load: Target, model: str, tmp_path: Path) -> None:
    made = write_load(load, serving_run("vllm", model, *GPU), target_named("vllm"))
    (one,) = run_script(next(iter(made.files.values())), tmp_path, **environment())
    assert model in one.words
    assert not list(tmp_path.rglob("X"))


@pytest.mark.parametrize("to", [*(f"vllm,{one}" for one in LAUNCHERS), "dynamo", "llm-d", "sglang,slurm"])
def test_such_a_path_is_read_back(to: str, tmp_path: Path) -> None:
    model = model_folder(tmp_path / "a $(touch X)`touch X`; 'touch' \"X\" {rank} $(HF_TOKEN) $$ <<E #b")
    target, _, launcher = to.partition(",")
    run, made = written(target_named(target), serving_run(target_named(target).runs[0], model, *GPU, replicas=2))
    files = launched(run, target_named(target), target_named(launcher) if launcher else None, made).files
    back = ds.import_plan(next(iter(files.values())))
    assert (back.model, back.slice, back.plan["tensor"], back.workload["replicas"]) == (model, "h100:2", 2, 2)


def test_a_folder_that_looks_like_a_flag_is_still_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model_folder(Path("--port"))
    run, made = written(target_named("vllm"), serving_run("vllm", "--port", *GPU))
    (one,) = run_script(launched(run, target_named("vllm"), None, made).files["vllm.sh"], tmp_path)
    assert one.words[:3] == ["vllm", "serve", "./--port"]


def test_the_command_writes_such_a_plan(model: str, tmp_path: Path) -> None:
    """From the plan file to the process, by the command that users have."""
    plan = tmp_path / "plan.toml"
    plan.write_text(f'model = {toml_text(model)}\nslice = "h100:2"\nengine = "vllm"\nbatch = 8\n[plan]\ntensor = 2\n')
    assert main(["export", str(plan), "--to", "vllm,shell", "--out", str(tmp_path / "out")]) == 0
    (one,) = run_script((tmp_path / "out" / "vllm.sh").read_text(), tmp_path)
    assert one.words[:3] == ["vllm", "serve", model]
    assert not list(tmp_path.rglob("X"))
