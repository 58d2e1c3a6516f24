"""The same loss curve for the same seed, however the run is split: every parallelism against one device."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("orbax.checkpoint")

ROOT = Path(__file__).parents[2]
STEPS = 6
ALONE = "microbatch=8"
FEW = {
    "llama": (
        "fsdp=2,tensor=2,context=2,microbatch=2,remat=matmuls",
        "data=2,zero=1,remat=block",
    )
}
MANY = {
    "llama": (
        "tensor=4,remat=block",
        "data=8",
        "fsdp=8",
        "tensor=2",
        "tensor=4,sequence=false",
        "context=4",
        "context=4,ring=true",
        "tensor=2,context=2,ring=true,fsdp=2",
        "tensor=8",
        "data=2,fsdp=2,tensor=2",
        "fsdp=4,context=2",
        "pipe=2,microbatch=2",
        "pipe=2,data=2,fsdp=2,schedule=gpipe",
        "pipe=2,fsdp=2,tensor=2,remat=block",
        "pipe=4,fsdp=2,schedule=zb-h1,zero=3",
        "pipe=2,context=2,tensor=2,remat=selective",
        "fsdp=8,zero=1",
        "fsdp=4,zero=2,data=2",
        "fsdp=2,zero=0",
        "microbatch=1",
        "microbatch=2,remat=selective",
        "fsdp=4,tensor=2,offload=activations:2,microbatch=2",
        "fsdp=2,context=2,remat=offload",
        "fsdp=4,tensor=2,offload=optimizer,microbatch=2",
        "fsdp=2,optimizer=adam-bf16",
        "fsdp=4,optimizer=adam8",
        "microbatch=8,optimizer=muon",
        "fsdp=2,tensor=2,optimizer=muon",
        "microbatch=8,optimizer=adafactor",
        "fsdp=4,optimizer=adafactor",
        "microbatch=8,optimizer=sgd",
        "fsdp=4,optimizer=sgd",
    ),
    "tied": ("fsdp=2,tensor=2",),
    "deepseek-v3": (
        "tensor=2",
        "fsdp=4",
        "expert=4,remat=matmuls",
        "expert=2,fsdp=2,tensor=2",
        "context=2,remat=selective",
    ),
    "qwen3-moe": (
        "expert=8",
        "expert=2,tensor=2,data=2,remat=block",
        "expert=2,tensor=2,sequence=false",
        "pipe=2,data=2,expert=2",
        "pipe=2,fsdp=2,context=2,schedule=zb-h1,remat=block",
        "expert=4,context=2",
    ),
    "mixtral": ("expert=4,tensor=2,remat=block", "expert=2,tensor=4", "fsdp=2,tensor=2"),
}


def curves(folder: Path, kind: str, plans: list[str]) -> dict[str, list[float]]:
    """The losses of a few steps under each plan, from a process of its own with 8 virtual devices."""
    environ = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.test_train_curves", str(folder), kind, *plans],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def check(folder: Path, kind: str, plans: tuple[str, ...], near: float = 5e-5) -> None:
    alone = {plan: _alone(plan) for plan in plans}
    found = curves(folder, kind, [*dict.fromkeys(alone.values()), *plans])
    for plan in plans:
        for step, (got, wanted) in enumerate(zip(found[plan], found[alone[plan]], strict=True)):
            # Moments in 8 bits lie in blocks of whole numbers of a chip, other ones on another mesh.
            rel = 2e-3 if "adam8" in plan else near
            assert got == pytest.approx(wanted, rel=rel), (kind, plan, step, found[plan], found[alone[plan]])
    first = found[ALONE] if ALONE in found else next(iter(found.values()))
    assert first[-1] < first[0]


def _alone(plan: str) -> str:
    """The plan for one device with the same optimizer."""
    kept = [part for part in plan.split(",") if part.startswith("optimizer=")]
    return ",".join([ALONE, *kept])


@pytest.mark.slow
@pytest.mark.parametrize("kind", FEW)
def test_a_split_run_has_the_curve_of_one_device(kind: str, tmp_path: Path) -> None:
    check(tmp_path, kind, FEW[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", MANY)
def test_every_parallelism_has_the_curve_of_one_device(kind: str, tmp_path: Path) -> None:
    check(tmp_path, kind, MANY[kind])


def main(folder: Path, kind: str, plans: list[str]) -> dict[str, Any]:
    import numpy

    from dragonscale.runtime.train.loop import train
    from dragonscale.runtime.train.settings import read_order
    from tests.runtime.tiny import CONFIGS

    (folder / "model.json").write_text(json.dumps(CONFIGS[kind]))
    words = numpy.random.default_rng(0).integers(0, 128, (16, 12))
    order = numpy.random.default_rng(1).integers(0, 16, 400)
    words[order].astype("<u2").tofile(folder / "text.bin")
    found: dict[str, list[float]] = {}
    for plan in plans:
        losses: list[float] = []
        settings = {
            "data": str(folder / "text.bin"),
            "steps": STEPS,
            "batch": 8,
            "seq": 32,
            "learning_rate": 3e-3,
            "dtype": "fp32",
            "seed": 3,
        }
        train(
            read_order(plan, str(folder / "model.json"), "", settings),
            lambda line, losses=losses: losses.append(line["loss"]),
        )
        found[plan] = losses
        print(plan, losses, file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])))
