"""Profiles of JAX: one recorded here on virtual CPU devices and laid beside what JAX reads in it, one of a GPU, one of
TPUs written by hand."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragonscale.evidence.profiles.hlo_proto import ProgramBytes
from dragonscale.evidence.profiles.opening import read_recording
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.xplane import read
from dragonscale.evidence.xla.compiled import read_matmuls
from dragonscale.evidence.xla.hlo_text import Module, read_module
from dragonscale.listener import Listener
from tests.evidence.profiles import xplanes
from tests.own_process import run_worker, virtual_devices

GPU = Path(__file__).parent / "jax_gpu_step.xplane.pb.gz"


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A profile of three steps on two virtual devices, with what JAX says about it."""
    folder = tmp_path_factory.mktemp("cpu")
    told = run_worker(["-m", "tests.evidence.profiles.record_cpu", str(folder)], "", virtual_devices(2))
    found: dict[str, Any] = json.loads(told.output.splitlines()[-1])
    return found | {"recording": read_recording(str(folder), Listener())}


def test_every_op_of_the_cpu_is_there_with_its_time(cpu: dict[str, Any]) -> None:
    recording: Recording = cpu["recording"]
    found: dict[str, list[float]] = {}
    events = recording.events.chosen(recording.on("ops"))
    for op, track, duration in zip(events.op, events.track, events.duration, strict=True):
        index = recording.devices[recording.tracks[track].device].index
        kept = found.setdefault(f"{index} {recording.ops[op].name}", [0, 0.0])
        kept[0] += 1
        kept[1] += float(duration)
    assert found.keys() == cpu["ops"].keys()
    for name, (count, seconds) in cpu["ops"].items():
        assert found[name][0] == count
        assert found[name][1] == pytest.approx(seconds, abs=count)  # each is rounded to a nanosecond
    assert [(each.kind, each.index) for each in recording.devices] == [("cpu", 0), ("cpu", 1)]


def test_steps_marked_by_the_program_have_their_numbers(cpu: dict[str, Any]) -> None:
    recording: Recording = cpu["recording"]
    steps = recording.events.chosen(recording.on("steps"))
    assert steps.run.tolist() == [5, 6, 7]
    ops = recording.events.chosen(recording.on("ops"))
    assert len(set(ops.run.tolist())) == 3  # the runs of the program


def test_ops_say_where_they_come_from(cpu: dict[str, Any]) -> None:
    recording: Recording = cpu["recording"]
    dots = [op for op in recording.ops if " dot(" in op.text or "ynn_fusion" in op.name]
    assert dots
    assert all("mlp" in op.scope and op.source.split(":")[0].endswith("record_cpu.py") for op in dots)
    assert all(op.module in recording.programs for op in dots)


def test_a_program_equals_its_text(cpu: dict[str, Any]) -> None:
    recording: Recording = cpu["recording"]
    held = recording.programs[next(op.module for op in recording.ops if op.module.startswith("jit_loss"))]
    text = read_module(cpu["text"])
    _same_module(held, text)
    held_matmuls, text_matmuls = (sorted(read_matmuls(each)[0], key=lambda one: one.name) for each in (held, text))
    assert held_matmuls == text_matmuls
    assert sum(each.flops_each * each.times for each in held_matmuls) == 9 * 2 * 32 * 128 * 128  # three in each layer


def _same_module(one: Module, other: Module) -> None:
    assert one.computations.keys() == other.computations.keys()
    for name, computation in other.computations.items():
        mine = one.computations[name]
        assert (mine.root, mine.is_entry) == (computation.root, computation.is_entry)
        assert [each.name for each in mine.instructions] == [each.name for each in computation.instructions]
        for left, right in zip(mine.instructions, computation.instructions, strict=True):
            assert (left.opcode, left.shapes, left.callees, left.config) == (
                right.opcode,
                right.shapes,
                right.callees,
                right.config,
            )
            assert left.opcode == "constant" or left.operands == right.operands
            for key in ("backend_config", "control-predecessors", "output_to_operand_aliasing"):
                left.attributes.pop(key, None)
                right.attributes.pop(key, None)
            assert left.attributes == right.attributes


def test_kernels_of_cuda_graphs_find_their_instructions() -> None:
    recording = read(GPU, Listener())
    events = recording.events.chosen(recording.on("ops"))
    assert len(events.start) == 897
    assert all(recording.ops[op].text for op in events.op)
    assert (events.launched >= 0).all()
    assert (events.launched <= events.start).all()
    assert recording.devices[0].name == "NVIDIA H200"
    assert recording.devices[0].bandwidth == 4814304000000.0
    attention = Counter(
        recording.ops[op].scope.rsplit("/", 1)[-1] for op in events.op if "cudnn" in recording.ops[op].name
    )
    # Three steps of four layers; the forward pass runs again in the backward, whose attention is three kernels.
    assert attention == {"dot_product_attention_fwd": 3 * 4 * 2, "dot_product_attention_bwd": 3 * 4 * 3}
    shared = [
        recording.ops[op].text.split(" = ")[0] for op in events.op if recording.ops[op].name == "gemm_fusion_dot_16"
    ]
    assert Counter(shared) == {f"%gemm_fusion_dot.{number}": 12 for number in (16, 17, 18, 19)}


def test_matmuls_of_a_gpu_program_are_those_of_its_kernels() -> None:
    recording = read(GPU, Listener())
    module = recording.programs["jit_train_step"]
    found = sum(each.flops_each * each.times for each in read_matmuls(module)[0] if "attention_" not in each.op_name)
    tokens, width, hidden, layers, vocab = 4 * 1024, 1024, 4096, 4, 8192
    each = 2 * tokens * width * (4 * width + 2 * hidden)
    last = 2 * tokens * width * hidden  # the last matmul of a layer is not run again
    assert found == layers * (4 * each - last) + 3 * 2 * tokens * width * vocab


def test_a_tpu_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(xplanes.tpu())
    recording = read(path, Listener())
    (device,) = recording.devices
    assert (device.name, device.flops, device.bandwidth) == ("TPU v6 Lite", 918e12, 1.6e12)
    kinds = {track.name: track.kind for track in recording.tracks}
    assert kinds == {
        "XLA Modules": "modules",
        "XLA Ops": "ops",
        "Async XLA Ops": "async",
        "Steps": "steps",
        "main": "host",
    }
    events = recording.events.chosen(recording.on("ops"))
    names = [recording.ops[op].name for op in events.op]
    assert names == ["while.1", "dot.3", "dot.3", "copy.9"]
    assert events.start.tolist() == [2000, 2000, 2600, 3000]
    assert events.duration.tolist() == [1000, 500, 400, 0]
    dot = next(op for op in recording.ops if op.name == "dot.3")
    assert (dot.flops, dot.bytes, dot.hbm_bytes) == (1024.0, 384.0, 256.0)
    assert (dot.scope, dot.module, dot.category) == ("jit(f)/mlp/dot_general", "jit_f", "convolution fusion")
    module = recording.events.chosen(recording.on("modules"))
    assert module.launched.tolist() == [1000]
    assert module.run.tolist() == [41]
    assert recording.events.run[recording.on("steps")].tolist() == [7]


def test_many_events_are_read_as_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gpu.xplane.pb"
    path.write_bytes(gzip.decompress(GPU.read_bytes()))
    fast = read(path, Listener())
    monkeypatch.setattr("dragonscale.evidence.profiles.event_columns._FEW", 1 << 60)
    slow = read(path, Listener())
    assert fast.ops == slow.ops
    assert fast.tracks == slow.tracks
    for column in ("start", "duration", "op", "track", "launched", "run"):
        assert np.array_equal(getattr(fast.events, column), getattr(slow.events, column))


EVERY_FORM = """HloModule jit_all, num_partitions=8

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

less {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT lt = pred[] compare(p, q), direction=LT, type=TOTALORDER
}

ENTRY main {
  image = bf16[8,16,16,4] parameter(0), sharding={devices=[4,1,1,1,2]<=[8] last_tile_dim_replicate}
  kernel = bf16[3,3,4,8] parameter(1), sharding={replicated}
  conv = bf16[8,8,8,8] convolution(image, kernel), window={size=3x3 stride=2x2 pad=0_1x1_0},
    dim_labels=b01f_01io->b01f, operand_precision={highest,default},
    metadata={op_name="jit(f)/conv" source_file="it's.py" source_line=7}
  x = f32[16,32] parameter(2)
  n = s32[4,1] parameter(3)
  rows = f32[4,32] gather(x, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,32}, indices_are_sorted=true
  put = f32[16,32] scatter(x, n, rows), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=add
  cut = f32[4,16] slice(x), slice={[0:4], [8:24]}
  zero = f32[] constant(0)
  padded = f32[20,33] pad(x, zero), padding=1_3x0_1
  window = f32[16,30] reduce-window(x, zero), window={size=1x3}, to_apply=add
  sorted = f32[16,32] sort(x), dimensions={1}, is_stable=true, to_apply=less
  count = s32[16] iota(), iota_dimension=0
  turned = f32[32,16] transpose(x), dimensions={1,0}
  dot = f32[16,16] dot(x, turned), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  gathered = f32[16,128] all-gather(x), channel_id=3, replica_groups=[2,4]<=[4,2]T(1,0), dimensions={1},
    use_global_device_ids=true
  listed = f32[16,32] all-reduce(x), channel_id=4, replica_groups={{0,1},{2,3},{4,5},{6,7}},
    use_global_device_ids=true, to_apply=add
  moved = f32[16,32] collective-permute(x), channel_id=5, source_target_pairs={{0,1},{1,0}}
  call = f32[16,32] custom-call(x), custom_call_target="mine", custom_call_has_side_effect=true,
    api_version=API_VERSION_TYPED_FFI, frontend_attributes={kind="new"}, backend_config={"a":1}
  ROOT all = (bf16[8,8,8,8], f32[16,32]) tuple(conv, call)
}
"""


def test_every_form_of_an_attribute_is_printed_as_xla_prints_it() -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    module = hlo.hlo_module_from_text(EVERY_FORM)
    data = xplanes.field(1, module.as_serialized_hlo_module_proto())
    ours = ProgramBytes(data, (0, len(data))).module
    for computation in read_module(module.to_string()).computations.values():
        for theirs in computation.instructions:
            printed = ours.computations[computation.name].named[theirs.name]
            assert (printed.opcode, printed.result, printed.operands) == (theirs.opcode, theirs.result, theirs.operands)
            assert printed.attributes == theirs.attributes
