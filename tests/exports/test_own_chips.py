"""Replicas that share a host have different chips and ports: scripts are run, and every process says what it sees."""

import math
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from dragonscale.commands.export.ask_export import launched
from dragonscale.errors import Infeasible
from dragonscale.exports.launchers.launch_parts import own_chips
from dragonscale.exports.target import target_named
from dragonscale.physics.hardware import load_chip
from tests.exports.stand_ins import GPUS, Started, environment, run_script
from tests.exports.written_runs import serving_run, training_run, written

SHARED = [
    ("vllm", "h100:4", "tensor=4", 2),
    ("vllm", "h100:2", "tensor=2", 4),
    ("vllm", "mi300x:2", "tensor=2", 4),
    ("sglang", "h100:4", "tensor=4", 2),
    ("sglang", "h100:2", "tensor=2", 4),
    ("trtllm", "h100:4", "tensor=4", 2),
    ("trtllm", "h100:1", "tensor=1", 4),
    ("llamacpp", "h100:2", "tensor=2", 4),
    ("vllm-tpu", "v6e:2x2", "tensor=4", 2),
    ("vllm-tpu", "v6e:1x1", "tensor=1", 4),
    ("vllm-tpu", "tpu7x:1x1x1", "tensor=1", 4),
    ("sgl-jax", "v5e:2x2", "tensor=4", 2),
    ("sgl-jax", "tpu7x:1x1x1", "tensor=1", 4),
]
"""An engine, the chips of a replica, its plan, and the replicas that a host holds here."""


def started(engine: str, on: str, plan: str, copies: int, launcher: str, folder: Path, **env: str) -> list[Started]:
    target = target_named(engine)
    run, made = written(target, serving_run(target.runs[0], "llama3-8b", on, plan, copies))
    files = launched(run, target, target_named(launcher), made).files
    for name, text in files.items():
        (folder / name).write_text(text)
    return run_script(next(iter(files.values())), folder, 4, **environment(**env))


def seen(one: Started, on: str) -> list[str]:
    """The chips that a process sees, by the variable that its chips go by."""
    chip = load_chip(on.partition(":")[0])
    amd = chip.name.startswith("mi")
    name = "TPU_VISIBLE_CHIPS" if chip.kind == "tpu" else "HIP_VISIBLE_DEVICES" if amd else "CUDA_VISIBLE_DEVICES"
    return one.env[name].split(",")


@pytest.mark.parametrize("launcher", ["shell", "slurm"])
@pytest.mark.parametrize(("engine", "on", "plan", "copies"), SHARED)
def test_replicas_on_a_host_have_their_own_chips_and_ports(
    engine: str, on: str, plan: str, copies: int, launcher: str, tmp_path: Path
) -> None:
    processes = started(engine, on, plan, copies, launcher, tmp_path)
    each = math.prod(int(size) for size in on.partition(":")[2].split("x"))
    chips = [seen(one, on) for one in processes]
    assert [len({*one}) for one in chips] == [each] * copies
    assert {chip for one in chips for chip in one} == {str(chip) for chip in range(copies * each)}
    assert len({one.after("--port") for one in processes}) == copies
    if engine in ("sglang", "sgl-jax"):  # each listens on further ports, by its own
        assert sorted(int(one.after("--port")) for one in processes) == [30000 + 100 * copy for copy in range(copies)]
    if "tpu" in engine or "jax" in engine:
        assert {one.env["TPU_PROCESS_BOUNDS"] for one in processes} == {"1,1,1"}
        bounds = {one.env["TPU_CHIPS_PER_PROCESS_BOUNDS"] for one in processes}
        assert bounds == {{1: "1,1,1", 4: "2,2,1"}[each]}
        ports = [one.env["TPU_PROCESS_PORT"] for one in processes]
        assert len({*ports}) == copies
        assert [one.env["TPU_PROCESS_ADDRESSES"] for one in processes] == [f"localhost:{port}" for port in ports]


@pytest.mark.parametrize(("engine", "on"), [("vllm", "h100:4"), ("vllm-tpu", "v6e:2x2")])
def test_slurm_fills_one_host_after_the_other(engine: str, on: str, tmp_path: Path) -> None:
    found = defaultdict(list)
    for one in started(engine, on, "tensor=4", 5, "slurm", tmp_path):
        found[one.env["HOST"]].append((",".join(seen(one, on)), one.after("--port")))
    two = [("0,1,2,3", "8000"), ("4,5,6,7", "8001")]
    assert {host: sorted(own) for host, own in found.items()} == {"node0": two, "node1": two, "node2": two[:1]}


@pytest.mark.parametrize("gpus", ["4,5,6,7", "GPU-a,GPU-b,GPU-c,GPU-d"])
def test_a_replica_takes_its_part_of_the_gpus_that_slurm_gave(gpus: str, tmp_path: Path) -> None:
    """A job that has a part of a host may have any of its GPUs."""
    processes = started("vllm", "h100:2", "tensor=2", 2, "slurm", tmp_path, JOB_GPUS=gpus)
    half = len(gpus) // 2
    assert sorted(one.env["CUDA_VISIBLE_DEVICES"] for one in processes) == [gpus[:half], gpus[half + 1 :]]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_replicas_end_with_the_script_that_started_them(stop: signal.Signals, tmp_path: Path) -> None:
    """Their chips are free again: bash alone would leave them running."""
    run, made = written(target_named("vllm"), serving_run("vllm", "llama3-8b", "h100:4", "tensor=4", 2))
    script, stub = tmp_path / "vllm.sh", tmp_path / "vllm"
    script.write_text(launched(run, target_named("vllm"), None, made).files["vllm.sh"])
    stub.write_text('#!/bin/sh\necho $$ > "$0.$CUDA_VISIBLE_DEVICES"\nexec sleep 30\n')
    stub.chmod(0o755)
    with subprocess.Popen(["bash", script], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}) as shell:
        servers = [tmp_path / f"vllm.{own}" for own in ("0,1,2,3", "4,5,6,7")]
        assert until(lambda: all(one.is_file() and one.read_text().strip() for one in servers))
        shell.send_signal(stop)
    assert until(lambda: not any(Path(f"/proc/{one.read_text().strip()}/cmdline").exists() for one in servers))


def until(holds: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether something holds soon."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def test_a_replica_that_is_alone_keeps_what_it_is_given(tmp_path: Path) -> None:
    (one,) = started("vllm", "h100:4", "tensor=4", 1, "slurm", tmp_path)
    assert one.env["CUDA_VISIBLE_DEVICES"] == GPUS
    (one,) = started("vllm-tpu", "v6e:2x2", "tensor=4", 1, "shell", tmp_path)
    assert "TPU_VISIBLE_CHIPS" not in one.env


def test_blocks_that_libtpu_does_not_have_are_refused() -> None:
    with pytest.raises(Infeasible, match=r"blocks of 1, 2, 4, 8, and a replica here has 3; take"):
        own_chips(load_chip("v6e"), 3, "copy")
    with pytest.raises(Infeasible, match=r"the 4 chips of a .* into blocks of 1, 2, 4,"):
        own_chips(load_chip("tpu7x"), 8, "copy")
    assert "export TPU_CHIPS_PER_PROCESS_BOUNDS=1,2,1" in own_chips(load_chip("tpu7x"), 2, "copy")


ASKS = [
    ("maxtext", "maxtext", "v6e:8x8", False),
    ("maxtext", "xla-gpu", "h100:16", True),
    ("megatron", "megatron-core", "h100:16", True),
]


@pytest.mark.parametrize(("trainer", "stack", "on", "asks"), ASKS)
def test_a_script_asks_for_what_its_command_uses(trainer: str, stack: str, on: str, asks: bool, tmp_path: Path) -> None:
    """JAX on a TPU finds its hosts by itself."""
    plan = f"fsdp={64 if on.startswith('v6e') else 16},zero={1 if trainer == 'megatron' else 3},remat=block"
    run, made = written(target_named(trainer), training_run(stack, "llama3-8b", plan, on))
    text = launched(run, target_named(trainer), None, made).files[f"{trainer}.sh"]
    assert ("NODE_RANK" in text, "MASTER_ADDR" in text) == (asks, asks)
    assert "on each of the " in text
    if not asks:
        (one,) = run_script(text, tmp_path)
        assert one.words[:2] == ["python3", "-m"]
