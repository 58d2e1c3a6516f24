"""Roles in profiles that were recorded on an H200 (`recorded/`), and in one made here on the CPU: shares, FLOPs, and
parts that agree."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dragonscale.evidence.profiles.attribution import attributed
from dragonscale.evidence.profiles.opening import read_recording
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.roles import KINDS, OpRole
from dragonscale.evidence.profiles.sizes import infer_sizes
from dragonscale.evidence.xla.compiled import read_matmuls
from dragonscale.evidence.xla.hlo_text import read_module
from dragonscale.listener import Listener
from tests.evidence.profiles.recordings import RECORDED, recorded

MATMULS = ("matmul", "grouped matmul", "attention")


def roles_of(path: Path) -> tuple[Recording, list[OpRole]]:
    split, roles = attributed(read_recording(str(path), Listener()))
    assert {role.kind for role in roles} <= {"", *KINDS}
    return split, roles


def share(split: Recording, roles: list[OpRole], field: str) -> float:
    """The part of the time of ops that has a kind, or a part of the model with a name of its own."""
    events = split.events.chosen(split.on("ops"))
    known = np.array([bool(getattr(role, field)) and not role.section.startswith("jit_") for role in roles])
    return float(events.duration[known[events.op]].sum() / events.duration.sum())


def flops(split: Recording, roles: list[OpRole]) -> float:
    times = np.bincount(split.events.op[split.on("ops")], minlength=len(roles))
    return sum(int(ran) * (role.flops or 0.0) for ran, role in zip(times, roles, strict=True) if role.kind in MATMULS)


@pytest.mark.parametrize("name", ["jax_train", "jax_decode", pytest.param("jax_moe", marks=pytest.mark.slow)])
def test_jax(name: str) -> None:
    facts = json.loads((RECORDED / f"{name}.json").read_text())
    split, roles = roles_of(recorded(f"{name}.xplane.pb.gz"))
    assert share(split, roles, "kind") > 0.99
    assert share(split, roles, "section") > 0.98
    programs = [
        read_matmuls(module)[0] for key, module in split.programs.items() if key in ("jit_step", "jit_serving_step")
    ]
    assert flops(split, roles) == facts["steps"] * sum(matmul.flops for matmul in programs[0])
    sizes, config = infer_sizes(split, roles).sizes, facts["model"]
    assert (sizes["d_model"], sizes["d_ff"]) == (config["hidden_size"], config["intermediate_size"])
    assert (sizes["vocab"], sizes["layers"]) == (config["vocab_size"], config["num_hidden_layers"])
    assert (sizes["heads"], sizes["kv_heads"]) == (config["num_attention_heads"], config["num_key_value_heads"])
    phases = {role.phase for role in roles if role.kind == "matmul"}
    assert phases == ({"decode"} if name == "jax_decode" else {"forward", "backward"})


def test_pytorch_by_modules_and_by_neighbours_alone() -> None:
    """Kernels without their modules' names, placed by the order of kernels, stand where the modules say."""
    recording = read_recording(str(RECORDED / "torch_modules.trace.json.gz"), Listener())
    split, roles = attributed(recording)
    assert share(split, roles, "kind") > 0.99
    assert share(split, roles, "section") > 0.98
    assert flops(split, roles) == 2 * json.loads((RECORDED / "torch_modules.json").read_text())["matmul_flops"]
    bare = replace(recording, ops=tuple(msgspec.structs.replace(op, scope="", shapes=()) for op in recording.ops))
    other, guessed = attributed(bare)
    events = np.flatnonzero(recording.on("ops"))
    time = recording.events.duration[events]
    same = [
        (roles[a].section, roles[a].phase) == (guessed[b].section, guessed[b].phase)
        for a, b in zip(split.events.op[events], other.events.op[events], strict=True)
    ]
    assert float(time[np.array(same)].sum() / time.sum()) > 0.9


def test_one_role_for_each_op() -> None:
    recording = read_recording(str(RECORDED / "torch_compiled.trace.json.gz"), Listener())
    split, roles = attributed(recording)
    assert len(roles) == len(split.ops)
    gemms = {role.section for role in roles if role.kind == "matmul"}
    assert gemms == {"attention", "mlp", "head"}


@pytest.mark.slow
def test_a_training_step_on_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    from tools.record_profiles import PARTS

    facts = PARTS["jax_train"](tmp_path, "jax_train", True)
    split, roles = roles_of(tmp_path / "jax_train.xplane.pb.gz")
    assert share(split, roles, "kind") > 0.97
    assert share(split, roles, "section") > 0.9
    module = read_module(gzip.decompress((tmp_path / "jax_train.hlo.txt.gz").read_bytes()).decode())
    assert flops(split, roles) == facts["steps"] * sum(matmul.flops for matmul in read_matmuls(module)[0])
