"""Chrome traces of PyTorch and JAX: what is read out of them, and that every way to write the same trace is read the
same."""

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.evidence.profiles.attribution import own_role
from dragonscale.evidence.profiles.kineto_tracks import NO_KERNELS
from dragonscale.evidence.profiles.opening import read_recording
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.listener import Listener
from tests.evidence.profiles.traces import kineto, xprof_tpu

HERE = Path(__file__).parent


def recorded(tmp_path: Path, trace: Any, name: str = "t.json") -> Recording:
    path = tmp_path / name
    text = trace if isinstance(trace, bytes) else json.dumps(trace).encode()
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    return read_recording(str(path), Listener())


def ops_on(recording: Recording, kind: Any) -> list[OpText]:
    return [recording.ops[one] for one in recording.events.op[recording.on(kind)].tolist()]


def matmul_flops(recording: Recording, run: int) -> float:
    total = 0.0
    for op in recording.events.op[recording.on("ops") & (recording.events.run == run)].tolist():
        if recording.ops[op].name in ("aten::addmm", "aten::mm"):
            left, right = ([int(one) for one in re.findall(r"\d+", text[3:])] for text in recording.ops[op].shapes[-2:])
            assert left[1] == right[0]
            total += 2.0 * math.prod(left) * right[1]
    return total


def test_a_training_step_on_the_cpu() -> None:
    recording = read_recording(str(HERE / "torch_cpu_step.trace.json.gz"), Listener())
    assert (recording.software, recording.devices[0].kind, recording.notes) == ("PyTorch/Kineto", "cpu", ())
    steps = recording.events.run[recording.on("steps")].tolist()
    assert steps == [1, 2]
    # 64 tokens through qkv, out, up, down and the head, forward and twice backward
    weights = 64 * 192 + 64 * 64 + 64 * 256 + 256 * 64 + 64 * 128
    assert [matmul_flops(recording, run) for run in steps] == [3 * 2.0 * 64 * weights] * 2
    ops = ops_on(recording, "ops")
    backward = [one for one in ops if "evaluate_function: GeluBackward0" in one.caller]
    assert {one.scope for one in backward} == {"Model_0/Block_0/MLP_0"}
    forward = [one for one in ops if one.name == "aten::gelu"]
    assert {one.scope for one in forward} == {"forward/Model_0/Block_0/MLP_0"}
    assert all(one.source.startswith("train.py(") for one in forward)
    assert any(one.scope.startswith("Optimizer.step#SGD.step") for one in ops)
    assert not {"aten::linear", "aten::matmul"} & {one.name for one in ops}
    # ops of a thread come one after the other
    events = recording.events.chosen(recording.on("ops"))
    assert (events.start[1:] >= events.end[:-1] - 1).all()
    assert len(recording.memory) == 224
    assert max(one.bytes for one in recording.memory) > 4 * weights


def test_kernels_have_what_launched_them(tmp_path: Path) -> None:
    recording = recorded(tmp_path, kineto())
    assert recording.devices[0].memory_bytes == 150109880320
    assert {(one.name, one.kind) for one in recording.tracks if one.device == 0} == {
        ("stream 7", "ops"),
        ("stream 7 copies", "copies"),
        ("stream 20", "async"),
        ("stream 7 annotations", "scopes"),
        ("steps", "steps"),
    }
    by_name = {one.name: one for one in ops_on(recording, "ops")}
    forward, backward = by_name["nvjet_tst_128x256"], by_name["nvjet_tst_64x64"]
    assert forward.caller == "aten::linear/aten::addmm"
    assert forward.scope == "forward/Model_0/MLP_3"
    assert forward.shapes == ("bf16[4096]", "bf16[8192,1024]", "bf16[1024,4096]")
    assert forward.source == "train.py(12): forward"
    assert forward.launch == "grid 512x1x1, block 384x1x1, registers 168, shared 213188"
    assert backward.caller == "autograd::engine::evaluate_function: AddmmBackward0/AddmmBackward0/aten::mm"
    assert backward.scope == "Model_0/MLP_3"
    events, first = recording.events, recording.ops.index(forward)
    launched = (events.start - events.launched)[events.op == first]
    assert launched.tolist() == [40_000, 40_000]
    assert events.duration[events.op == first].tolist() == [100_000, 100_000]
    assert events.run[events.op == first].tolist() == [7, 8]
    graph = [
        events.launched[events.op == recording.ops.index(by_name[f"triton_poi_fused_{one}"])]
        for one in ("add_0", "mul_1")
    ]
    assert graph[0].tolist() == graph[1].tolist()
    assert (graph[0] >= 0).all()
    assert "rank 0 of 8" in recording.notes[0]
    assert {one.bytes for one in recording.memory} == {float(1 << 30)}


def test_collectives_and_copies_have_their_bytes(tmp_path: Path) -> None:
    trace = kineto()
    for event in trace["traceEvents"]:
        event.get("args", {}).pop("Process Group Ranks", None)  # then the list of groups beside the events has them
    recording = recorded(tmp_path, trace)
    (collective,) = set(ops_on(recording, "async"))
    assert (collective.group, collective.wire_bytes, collective.shapes[0]) == ((0, 2, 4, 6), 2000.0, "bf16[1000]")
    (copy,) = set(ops_on(recording, "copies"))
    assert copy.wire_bytes == 4096


def test_the_operator_says_what_a_collective_sends_where_its_kernel_does_not(tmp_path: Path) -> None:
    trace = kineto()
    words = (
        "Collective name",
        "In msg nelems",
        "Out msg nelems",
        "Group size",
        "dtype",
        "Process Group Name",
        "Process Group Ranks",
    )
    said = {}
    for event in trace["traceEvents"]:
        said |= {word: event["args"].pop(word) for word in words if word in event.get("args", {})}
    for event in trace["traceEvents"]:
        if event["name"] == "nccl:all_reduce":
            event["args"] |= said
    (collective,) = set(ops_on(recorded(tmp_path, trace), "async"))
    assert (collective.group, collective.wire_bytes) == ((0, 2, 4, 6), 2000.0)


@pytest.mark.parametrize(("mark", "kind"), [("all_to_all", "all_to_all"), ("send 0->1", "permute"), ("", "permute")])
def test_sends_of_an_older_pytorch_are_what_the_mark_around_them_says(mark: str, kind: str, tmp_path: Path) -> None:
    trace, events = kineto(), list[dict[str, Any]]()
    for event in trace["traceEvents"]:
        if event["name"] == "nccl:all_reduce":
            around = [event | {"name": f"nccl:{mark}", "cat": "user_annotation", "args": {}}] if mark else []
            events += [*around, event | {"name": "record_param_comms", "ts": event["ts"] + 1, "dur": event["dur"] - 2}]
        elif "AllReduce" in event["name"]:
            args = {name: event["args"][name] for name in ("correlation", "device", "stream")}
            events.append(event | {"name": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWork*)", "args": args})
        else:
            events.append(event)
    (moves,) = set(ops_on(recorded(tmp_path, trace | {"traceEvents": events}), "async"))
    assert own_role(moves).kind == kind


def test_moments_since_1970_keep_their_nanoseconds(tmp_path: Path) -> None:
    kernel = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%s,"dur":%s,"args":{"device":0,"stream":7}}'
    text = f"[{kernel % ('1790857026000100.001', '0.5')}, {kernel % ('1790857026000200.999', '0.125')}]"
    events = recorded(tmp_path, text.encode()).events
    assert events.start.tolist() == [0, 100_998]  # floats of that size are a quarter of a microsecond apart
    assert events.duration.tolist() == [500, 125]


def written(trace: dict[str, Any]) -> dict[str, bytes]:
    """The same trace in all the ways in which one may be written."""
    events, rest = trace["traceEvents"], {key: value for key, value in trace.items() if key != "traceEvents"}
    dense = json.dumps(trace, separators=(",", ":")).encode()
    split = [part for one in events for part in begun_and_ended(one)]
    return {
        "dense": dense,
        "wide": json.dumps(trace, indent=3).encode(),
        "events last": json.dumps({**rest, "stackFrames": [{"x": "]}{["}] * 9, "traceEvents": events}).encode(),
        "events first": json.dumps({"traceEvents": events, **rest}).encode(),
        "a comma too many": dense.replace(b'],"traceName"', b',],"traceName"'),
        "bytes that are no text": dense.replace(b"cudaLaunchKernel", b"cudaLaunch\xff\xfe\tKernel"),
        "moments as text": re.sub(rb'"ts":([\d.]+)', rb'"ts":"\1"', dense),
        "begin and end": json.dumps({**rest, "traceEvents": split}).encode(),
        "brackets in strings": dense.replace(b"nn.Module: MLP_3", b'nn.Module: MLP_3\\",{}],{').replace(b"]}{[", b""),
    }


def begun_and_ended(event: dict[str, Any]) -> list[dict[str, Any]]:
    """A span as two events."""
    if event.get("ph") != "X":
        return [event]
    begin = {**{key: value for key, value in event.items() if key != "dur"}, "ph": "B"}
    return [begin, {"ph": "E", "pid": event["pid"], "tid": event["tid"], "ts": event["ts"] + event["dur"]}]


@pytest.mark.parametrize("way", [*written(kineto())])
@pytest.mark.parametrize("packed", ["t.json", "t.json.gz"])
def test_ways_to_write_a_trace(way: str, packed: str, tmp_path: Path) -> None:
    expected = recorded(tmp_path, kineto(), "expected.json")
    found = recorded(tmp_path, written(kineto())[way], packed)
    assert found.events.start.tolist() == expected.events.start.tolist()
    assert found.devices == expected.devices
    assert [found.ops[one].name for one in found.events.op[found.on("ops")]] == [
        expected.ops[one].name for one in expected.events.op[expected.on("ops")]
    ]


def test_a_list_without_end_is_read_and_said(tmp_path: Path) -> None:
    text = json.dumps(kineto()["traceEvents"], indent=1).encode()
    whole = recorded(tmp_path, text)
    cut = recorded(tmp_path, text[: len(text) - 900])
    assert whole.notes == ()
    assert 0 < len(whole.events.start) - len(cut.events.start) < 6
    assert "not whole" in cut.notes[0]
    packed = gzip.compress(json.dumps(kineto()).encode(), 1)
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) * 2 // 3])
    assert "not whole" in " ".join(read_recording(str(tmp_path / "cut.json.gz"), Listener()).notes)


def test_an_event_that_is_wrong_costs_only_itself(tmp_path: Path) -> None:
    trace = kineto()
    kernel = next(one for one in trace["traceEvents"] if one.get("cat") == "kernel")
    wrong = [
        {**kernel, "dur": -5},
        {**kernel, "ts": "soon"},
        {**kernel, "ts": None},
        {**kernel, "ts": 1e300},
        {**kernel, "dur": float("nan")},
        {**kernel, "name": {"a": 1}},
        7,
        "text",
        [1, 2],
        None,
        {**kernel, "ts": float("inf")},
        {**kernel, "args": [1]},
    ]
    found = recorded(
        tmp_path, {**trace, "traceEvents": [*trace["traceEvents"][:20], *wrong, *trace["traceEvents"][20:]]}
    )
    kernels = len(ops_on(recorded(tmp_path, trace), "ops"))
    # an event without a duration, or without statistics, is still one
    assert len(ops_on(found, "ops")) - kernels in (1, 2)
    assert "left out" in " ".join(found.notes)


def test_a_tpu_as_xprof_exports_it(tmp_path: Path) -> None:
    recording = recorded(tmp_path, xprof_tpu(), "t.json.gz")
    assert (recording.software, recording.devices[0].kind) == ("JAX/XProf", "tpu")
    assert [(one.device, one.name, one.kind) for one in recording.tracks] == [
        (0, "XLA Ops", "ops"),
        (0, "XLA Modules", "modules"),
        (0, "Steps", "steps"),
        (0, "Async XLA Ops", "async"),
        (0, "Framework Name Scope", "scopes"),
        (-1, "python", "host"),
    ]
    op = ops_on(recording, "ops")[0]
    assert (op.name, op.scope, op.source, op.flops, op.bytes) == (
        "fusion.3",
        "jit(step)/mlp/dot_general",
        "m.py:7",
        33554432.0,
        458752.0,
    )
    assert op.text.startswith("%fusion.3 = bf16[128,512]{1,0:T(8,128)(2,1)} fusion(")
    assert recording.events.duration[recording.on("ops")].tolist() == [1500, 1500]
    assert recording.events.run[recording.on("steps")].tolist() == [0, 1]


def test_kernels_of_a_gpu_are_not_counted_twice(tmp_path: Path) -> None:
    trace = xprof_tpu()
    for event in trace["traceEvents"]:
        if event.get("args", {}).get("name") == "/device:TPU:0":
            event["args"]["name"] = "/device:GPU:0 (NVIDIA H200)"
        if event.get("args", {}).get("name") == "Async XLA Ops":
            event["args"]["name"] = "Stream #13(Compute)"
    recording = recorded(tmp_path, trace)
    assert (recording.devices[0].name, recording.devices[0].kind) == ("NVIDIA H200", "gpu")
    assert [one.name for one in recording.tracks if one.kind == "ops"] == ["Stream #13(Compute)"]


def test_the_two_files_of_one_jax_profile_agree(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    multiply = jax.jit(lambda a, b: jax.numpy.tanh(a @ b).sum())
    a = jax.numpy.ones((128, 256))
    multiply(a, a.T).block_until_ready()
    with jax.profiler.trace(str(tmp_path)):
        for step in range(2):
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                multiply(a, a.T).block_until_ready()
    (trace,), (plane,) = tmp_path.rglob("*.trace.json.gz"), tmp_path.rglob("*.xplane.pb")
    full = read_recording(str(trace), Listener())
    assert full.source == plane.name  # it lies beside the trace, and holds more
    assert len(ops_on(full, "ops")) > 1
    small = read_recording(str(trace.rename(tmp_path / "alone.trace.json.gz")), Listener())
    for kind in ("ops", "steps"):
        ours, theirs = small.events.chosen(small.on(kind)), full.events.chosen(full.on(kind))
        assert [small.ops[one].name for one in ours.op] == [full.ops[one].name for one in theirs.op]
        assert [small.ops[one].module for one in ours.op] == [full.ops[one].module for one in theirs.op]
        assert np.abs(ours.duration - theirs.duration).max() <= 1
        assert np.abs(np.diff(ours.start) - np.diff(theirs.start)).max() <= 2
        assert ours.run.tolist() == theirs.run.tolist()


def test_a_browsers_trace_is_refused(tmp_path: Path) -> None:
    browser = [
        {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": "Browser"}},
        {"ph": "X", "cat": "toplevel,ipc", "pid": 1, "tid": 1, "ts": 1, "dur": 5, "name": "RunTask"},
        {"ph": "B", "cat": "v8", "pid": 1, "tid": 1, "ts": 7, "name": "V8.Execute"},
    ]
    with pytest.raises(InputError, match="without tracks of a device"):
        recorded(tmp_path, browser)


def test_the_host_of_a_gpu_has_no_roofline(tmp_path: Path) -> None:
    trace = kineto()
    trace["traceEvents"] = [
        event for event in trace["traceEvents"] if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    (tmp_path / "t.json").write_text(json.dumps(trace))
    found = ds.profile(str(tmp_path / "t.json"), on="h200")
    assert NO_KERNELS in found.notes
    assert found.hfu is None
    assert not [group for group in found.groups if group.fraction or group.flops_per_s]
    assert str(found).splitlines()[3].startswith("The kernels of the GPU were not recorded")
    with pytest.raises(InputError, match="only the host's times"):
        ds.profile(str(tmp_path / "t.json"), plan="dp1", model="llama3-8b", on="h200:1", batch="1seq", seq=64)


def test_a_cpu_is_not_held_against_a_gpu() -> None:
    with pytest.raises(InputError, match="recorded on a CPU"):
        ds.profile(str(Path(__file__).parent / "torch_cpu_step.trace.json.gz"), on="h200")
