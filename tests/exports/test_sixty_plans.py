"""Plans for every target and every way to share a host, started under stand-ins by every launcher: each process has chips
of its own and no more of them than it was planned for. All of them are slow; one in ten is in the default run."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragonscale.commands.export.ask_export import launched
from dragonscale.errors import Infeasible
from dragonscale.exports.launchers import launch_parts
from dragonscale.exports.rl.rl_commands import targets as rl_targets
from dragonscale.exports.rl.rl_commands import write_rl
from dragonscale.exports.rl.rl_file import RlFile
from dragonscale.exports.runs import Run, hosts_of
from dragonscale.exports.target import Target, of_kind, target_named
from dragonscale.faces.cli import main
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.training.plan.plan import Plan
from tests.exports.stand_ins import GPUS, Started, run_script
from tests.exports.test_hostile_paths import LAUNCHERS, started
from tests.exports.written_runs import serving_run, training_run, written


@dataclass(frozen=True)
class Case:
    """A plan: what runs it, on which chips, and how many replicas of it there are."""

    target: str
    on: str
    plan: str
    replicas: int = 1
    pool: bool = False
    model: str = "llama3-8b"

    def __str__(self) -> str:
        return f"{self.target} {self.replicas} x {self.plan} on {self.on}{' and a pool' if self.pool else ''}"

    def run(self) -> tuple[Target, Run]:
        target = target_named(self.target)
        if target.kind == "training":
            return target, training_run(target.runs[0], self.model, self.plan, self.on)
        return target, serving_run(target.runs[0], self.model, self.on, self.plan, self.replicas, self.pool)


def _sharings() -> Iterator[Case]:
    """Replicas of every size that divides a host, one host full of them; of a whole host two."""
    gpus = {"vllm": ("h100", "mi300x", "gb200"), "sglang": ("h100", "b200"), "trtllm": ("h100",), "llamacpp": ("l40s",)}
    for target, chips in (*gpus.items(), ("dynamo", ("h100",)), ("llm-d", ("h100",))):
        for chip in chips:
            host = parse_slice(f"{chip}:1").chip.host_chips
            for each in (size for size in (1, 2, 4, 8) if size <= host):
                yield Case(target, f"{chip}:{each}", f"tensor={each}", max(host // each, 2))
    shapes = {"v5e": ("1x1", "2x2"), "v6e": ("1x1", "2x2", "2x4"), "tpu7x": ("1x1x1", "2x2x1")}
    for target in ("vllm-tpu", "sgl-jax"):
        for chip, blocks in shapes.items():
            for block in blocks:
                piece = parse_slice(f"{chip}:{block}")
                yield Case(target, str(piece), f"tensor={piece.chips}", max(piece.chip.host_chips // piece.chips, 2))


TRAINERS = {
    "megatron": ("h100:16", "fsdp=8,tensor=2,zero=1,remat=block"),
    "megatron-bridge": ("h100:16", "fsdp=8,tensor=2,zero=1,remat=block"),
    "torchtitan": ("h100:16", "fsdp=16,zero=3,remat=block"),
    "maxtext": ("v6e:8x8", "fsdp=64,zero=3,remat=block"),
    "deepspeed": ("h100:16", "fsdp=16,zero=3,remat=block"),
    "accelerate": ("gb200:8", "fsdp=8,zero=3,remat=block"),
    "axolotl": ("h100:8", "fsdp=8,zero=3,remat=block"),
    "llamafactory": ("h100:8", "fsdp=8,zero=3,remat=block"),
    "torchtune": ("h100:8", "fsdp=8,zero=3,remat=block"),
    "trl": ("h100:8", "fsdp=8,zero=3,remat=block"),
    "swift": ("h100:8", "fsdp=8,zero=3,remat=block"),
}
SEVERAL = [
    Case("vllm", "h100:16", "tensor=8,pipe=2", 2),
    Case("sglang", "h100:16", "tensor=16", 1, model="llama3.1-405b"),
    Case("trtllm", "h100:16", "tensor=8,pipe=2", 1),
    Case("vllm", "h100:4", "tensor=4", 2, pool=True),
    Case("sglang", "h100:8", "tensor=8", 2, pool=True),
    Case("trtllm", "h100:8", "tensor=8", 1, pool=True),
    Case("vllm-tpu", "v6e:4x4", "tensor=4,data=4", 1),
]
CASES = [*_sharings(), *SEVERAL, *(Case(name, on, plan) for name, (on, plan) in TRAINERS.items())]


def test_there_are_sixty_plans() -> None:
    """With those of reinforcement learning and those that are recommended."""
    assert len(CASES) + len(rl_targets()) + len(RECOMMENDED) >= 60
    assert {case.target for case in CASES} == {one.name for one in _started_targets()}


def _started_targets() -> list[Target]:
    return [*of_kind("training"), *of_kind("serving")]


def sees(one: Started, piece: Slice, named: bool = True) -> list[str]:
    """The chips that a process sees; all of its host where no variable says which."""
    chip = piece.chip
    amd = chip.name.startswith("mi")
    name = "TPU_VISIBLE_CHIPS" if chip.kind == "tpu" else "HIP_VISIBLE_DEVICES" if amd else "CUDA_VISIBLE_DEVICES"
    every = [str(place) for place in range(chip.host_chips)]
    return one.env[name].split(",")[: chip.host_chips] if named and name in one.env else every


def engines(processes: list[Started]) -> list[Started]:
    """The processes that have chips."""
    front = ("router", "bootstrap", "dynamo.frontend", "disaggregated", "mini_lb")
    found = [one for one in processes if one.words[0] != "ray"]  # which starts the engine's on its own host
    return [one for one in found if not any(word in " ".join(one.words) for word in front)]


def check_host(processes: list[Started], piece: Slice) -> None:
    """Of the processes on one host none has a chip of another, each has as many as planned, and no port is another's."""
    each = min(piece.chips, piece.chip.host_chips)
    seen = [sees(one, piece) for one in processes]
    every = [chip for chips in seen for chip in chips]
    assert len(every) == len({*every}), f"two processes share a chip: {seen}"
    assert {len(chips) for chips in seen} == {each}, f"{each} chips are planned for each: {seen}"
    assert {*every} <= {str(place) for place in range(piece.chip.host_chips)}
    ports = [one.after("--port") for one in processes if "--port" in one.words]
    assert len(ports) == len({*ports})
    if piece.chip.kind == "tpu" and len(processes) > 1:
        libtpu = {one.env["TPU_PROCESS_PORT"] for one in processes}
        assert len(libtpu) == len(processes)
        for one in processes:
            x, y, z = (int(size) for size in one.env["TPU_CHIPS_PER_PROCESS_BOUNDS"].split(","))
            assert x * y * z == each


def check_serving(launcher: str, files: dict[str, str], processes: list[Started], piece: Slice) -> None:
    """Processes of engines by the host that they are on."""
    found = engines(processes)
    assert found or [one.words[0] for one in processes] == ["ray"]  # a host after the first
    if launcher in ("kubernetes", ""):  # a pod has the chips that it asks for
        for text in files.values():
            asked = {int(count) for count in _asked(list(yaml.safe_load_all(text))) if int(count)}
            assert asked <= {hosts_of(piece)[1]}, asked
        return
    hosts = defaultdict(list)
    for one in found:
        hosts[one.env.get("HOST", "")].append(one)
    if any("prefill" in name for name in files) or "mpirun" in {one.words[0] for one in found}:
        hosts = defaultdict(list, {str(place): [one] for place, one in enumerate(found)})  # each started on its own
    for own in hosts.values():
        if own[0].words[0] == "trtllm-llmapi-launch":  # a rank for each chip, which takes that of its number
            assert len(own) == min(piece.chips, piece.chip.host_chips)
            continue
        if len(own) == 1 and sees(own[0], piece) == [str(place) for place in range(piece.chip.host_chips)]:
            continue  # alone on its host, as it was given to it
        check_host(own, piece)


def _asked(value: Any) -> list[str]:
    """The chips that containers ask for, anywhere in manifests."""
    if isinstance(value, list):
        return [found for one in value for found in _asked(one)]
    if not isinstance(value, dict):
        return []
    own = [str(count) for name, count in value.get("limits", {}).items() if "/" in name or name == "gpu"]
    return own + [found for one in value.values() for found in _asked(one)]


def check_training(launcher: str, processes: list[Started], piece: Slice) -> None:
    """Every host starts a process for each of its chips, or one for all of them."""
    hosts, each = hosts_of(piece)
    assert processes
    if launcher == "slurm":
        assert len({one.env["HOST"] for one in processes}) == hosts
    for one in processes:
        if "--nproc-per-node" in one.words:
            assert int(one.after("--nproc-per-node")) == each
        if "--num_processes" in one.words:
            assert int(one.after("--num_processes")) == piece.chips


REFUSED = ("SkyPilot has no TPU7x", "TensorRT-LLM starts an engine of several hosts with MPI, which plain pods")


def check(case: Case, folder: Path) -> int:
    """Every launcher's files of a plan, started."""
    target, run = case.run()
    launchers = 0
    run, made = written(target, run)
    for launcher in LAUNCHERS if made.programs else [""]:
        try:
            files = dict(launched(run, target, target_named(launcher) if launcher else None, made).files)
        except Infeasible as error:
            assert str(error).startswith(REFUSED), error  # noqa: PT017
            continue
        inside = folder / (launcher or "own")
        inside.mkdir()
        files = {name: text.replace("/config/", f"{inside}/") for name, text in files.items()}
        hosts = max(hosts_of(run.slice)[0] * case.replicas * (2 if case.pool else 1), 1)
        processes = started(launcher, files, inside, min(hosts, _nodes(files) or hosts))
        if target.kind == "training":
            check_training(launcher, processes, run.slice)
        else:
            check_serving(launcher, files, processes, run.slice)
        launchers += 1
    return launchers


def _nodes(files: dict[str, str]) -> int:
    lines = [line for text in files.values() for line in text.splitlines() if line.startswith("#SBATCH --nodes=")]
    return max((int(line.rpartition("=")[2]) for line in lines), default=0)


@pytest.mark.parametrize("case", CASES[4::13], ids=str)
def test_processes_have_chips_of_their_own(case: Case, tmp_path: Path) -> None:
    assert check(case, tmp_path) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for place, case in enumerate(CASES) if place % 13 != 4], ids=str)
def test_every_plan_has_chips_of_its_own(case: Case, tmp_path: Path) -> None:
    assert check(case, tmp_path) >= 1


RECOMMENDED = [
    ("serve", "qwen3-32b", "v6e:2x4", "vllm-tpu"),
    ("serve", "llama3.3-70b", "h100:8", "vllm"),
    ("serve", "llama3.3-70b", "tpu7x:2x2x1", "sgl-jax"),
    ("serve", "llama3.1-8b", "h100:8", "sglang"),
    ("serve", "qwen3-30b-a3b", "mi300x:8", "vllm"),
    ("serve", "llama3.1-8b", "b200:8", "trtllm"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "model", "on", "engine"), RECOMMENDED)
def test_recommended_plans_have_chips_of_their_own(
    command: str, model: str, on: str, engine: str, tmp_path: Path
) -> None:
    """From the question to the processes, by the commands that users have."""
    plan = tmp_path / "plan.toml"
    assert main([command, model, "--on", on, "--engine", engine, "--save", str(plan)]) == 0
    text = plan.read_text()
    each = parse_slice(next(line for line in text.splitlines() if line.startswith("slice")).split('"')[1])
    for launcher in ("shell", "slurm", "kubernetes", "skypilot"):
        out = tmp_path / launcher
        if launcher == "skypilot" and on.startswith("tpu7x"):
            continue
        assert main(["export", str(plan), "--to", f"{engine},{launcher}", "--out", str(out)]) == 0
        files = {path.name: path.read_text() for path in sorted(out.iterdir())}
        inside = tmp_path / f"run-{launcher}"
        inside.mkdir()
        processes = started(launcher, files, inside, _nodes(files) or 8)
        check_serving(launcher, files, processes, each)


@pytest.mark.parametrize("name", list(rl_targets()))
def test_a_framework_is_started_on_the_chips_of_its_run(name: str, tmp_path: Path) -> None:
    trained = Plan(fsdp=8, zero=3, remat="block")
    file = RlFile(name, "qwen3-8b", "h100:8", train_chips=8, rollout_chips=8, train=trained).settled
    (text,) = write_rl(RlFile(**{**vars(file), "rollout": ServingPlan(tensor=2)})).values()
    (one,) = run_script(text, tmp_path)
    said = " ".join(one.words)
    assert {"verl": "n_gpus_per_node=8", "nemo-rl": "gpus_per_node=8"}.get(name, " 8") in said


def _none(*_: Any) -> list[str]:
    """Every task keeps what Slurm gives it."""
    return []


def _first(_: Any, chips: int, __: str) -> list[str]:
    """Every copy takes the first chips."""
    return [f"export CUDA_VISIBLE_DEVICES={GPUS[: 2 * chips - 1]}"]


WRONG = [("own_part", _none), ("own_chips", _first)]


@pytest.mark.parametrize(("binding", "wrong"), WRONG)
def test_a_wrong_binding_dies(binding: str, wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_parts, binding, wrong)
    with pytest.raises(AssertionError, match="share a chip"):
        check(Case("vllm", "h100:4", "tensor=4", 2), tmp_path)
