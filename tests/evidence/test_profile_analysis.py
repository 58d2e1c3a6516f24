"""Recordings made by hand, whose steps, parts, gaps and groups are known to the nanosecond."""

from typing import Any

import numpy as np
import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.analysis import analyse
from dragonscale.evidence.profiles.beside import ExpectedStep, beside, expected_step
from dragonscale.evidence.profiles.device_work import track_pieces
from dragonscale.evidence.profiles.gaps import BETWEEN, LAUNCH, QUEUED, STALL
from dragonscale.evidence.profiles.groups import group_form
from dragonscale.evidence.profiles.recording import OpText, Recorder
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.savings import find_savings
from dragonscale.evidence.verify.records import Request
from dragonscale.physics.hardware import load_chip

US = 1000
MATMUL = OpRole("matmul", "mlp")


class Made:
    """A recording of one GPU with a compute stream, written op by op."""

    def __init__(self, kind: Any = "gpu", name: str = "NVIDIA H200") -> None:
        self.record = Recorder("made by hand", "test")
        self.device = self.record.device(name, kind)
        self.tracks: dict[str, int] = {}
        self.roles: dict[int, OpRole] = {}

    def track(self, name: str, kind: Any = "ops", device: int | None = None) -> int:
        if name not in self.tracks:
            self.tracks[name] = self.record.track(self.device if device is None else device, name, kind)
        return self.tracks[name]

    def run(
        self,
        name: str,
        start: int,
        length: int,
        role: OpRole = MATMUL,
        on: str = "stream",
        kind: Any = "ops",
        **more: Any,
    ) -> None:
        text = more.pop("text", "")
        op = self.record.op(OpText(name, text=text))
        self.roles[op] = role
        device = -1 if kind == "host" else None
        self.record.event(self.track(on, kind, device), op, start, length, **more)

    def read(self, chip: str = "h200", **more: Any) -> Any:
        made = self.record.made()
        roles = [self.roles.get(number, OpRole()) for number in range(len(made.ops))]
        return analyse(made, roles, load_chip(chip), **more)


def parts_of(analysis: Any) -> dict[str, float]:
    return {part.name: round(part.seconds * 1e6, 6) for part in analysis.reading.parts}


def test_own_time_against_a_clock_that_ticks():
    rng = np.random.default_rng(3)

    def nested(low: int, high: int, depth: int) -> list[tuple[int, int]]:
        found, now = [], low
        while now < high:
            now += int(rng.integers(0, 3))
            end = min(now + int(rng.integers(1, 20)), high)
            if end <= now:
                break
            found.append((now, end))
            if depth and rng.random() < 0.6:
                found += nested(now + 1, end, depth - 1)
            now = end
        return found

    for _ in range(40):
        events = sorted(nested(0, 60, 3), key=lambda one: (one[0], -one[1]))
        start, end = (np.array([one[side] for one in events]) for side in (0, 1))
        pieces = track_pieces(start, end)
        own = np.bincount(pieces.event, (pieces.end - pieces.start), len(start))
        ticks = np.zeros(len(start))
        for now in range(60):
            running = [one for one in range(len(start)) if start[one] <= now < end[one]]
            if running:
                ticks[min(running, key=lambda one: end[one] - start[one])] += 1
        assert own.tolist() == ticks.tolist()


def test_kernels_that_overlap_without_nesting_are_cut_not_lost():
    pieces = track_pieces(np.array([0, 8, 9]), np.array([10, 20, 30]))
    assert int((pieces.end - pieces.start).sum()) == 30
    assert (pieces.start[1:] >= pieces.end[:-1]).all()


def stepped(count: int = 6) -> Made:
    """Steps of 100 us: 40 compute, 30 all-reduce of which 10 overlap, a copy of 5 exposed, 35 idle."""
    made = Made()
    reduce = OpRole("all_reduce", "mlp", "forward", wire_bytes=3e6, group=(0, 2, 4, 6))
    for step in range(count):
        at = step * 100 * US
        made.run(
            "head",
            at,
            40 * US,
            OpRole("matmul", "head", "forward", flops=1e9, hbm_bytes=1e6, dtype="bf16"),
            launched=at - 1,
        )
        made.run("nccl", at + 30 * US, 30 * US, reduce, on="comm", launched=at)
        made.run("memcpy", at + 58 * US, 7 * US, OpRole("memory", "mlp"), on="copies", kind="copies", launched=at)
        made.run("step", at, 100 * US, on="steps", kind="steps")
    return made


def test_parts_add_up_and_overlap_is_told_apart():
    found = stepped().read(mesh={"data": 2, "fsdp": 4, "tensor": 2})
    reading = found.reading
    assert parts_of(found) == {"compute": 40, "exposed communication": 20, "exposed copies": 5, "idle": 35}
    assert sum(part.seconds for part in reading.parts) == pytest.approx(reading.step_s) == pytest.approx(100e-6)
    (line,) = reading.communication
    assert (line.over, line.axes, line.group_size) == ("fsdp", ("fsdp",), 4)
    assert [round(value * 1e6) for value in (line.exposed_s, line.overlapped_s, line.seconds)] == [20, 10, 30]
    assert line.bus_bytes_per_s == pytest.approx(100e9)
    assert line.wire_bytes_per_s == 450e9
    by_kind = {group.kind: group for group in reading.groups}
    assert by_kind["matmul"].fraction == pytest.approx(1e9 / load_chip("h200").peak("bf16") / 40e-6)
    assert by_kind["all_reduce"].exposed_s == pytest.approx(20e-6)
    assert sum(group.exposed_s for group in reading.groups) == pytest.approx(65e-6)
    assert stepped().read().reading.communication[0].over == "groups of 4, stride 2"
    assert group_form((0, 1, 2)) == "groups of 3"


def test_streams_that_compute_at_once_share_the_time():
    made = Made()
    made.run("a", 0, 20 * US, OpRole("matmul", "mlp"))
    made.run("b", 10 * US, 20 * US, OpRole("attention", "attention"), on="other")
    seconds = {group.kind: round(group.seconds * 1e6) for group in made.read().reading.groups}
    assert seconds == {"matmul": 15, "attention": 15}


def test_a_loop_has_only_what_its_body_leaves():
    made = Made("tpu", "TPU v5p")
    made.run("while.1", 0, 100 * US, OpRole("control"), on="XLA Ops")
    for turn in range(4):
        made.run("fusion.2", (turn * 25 + 2) * US, 20 * US, OpRole("matmul", "mlp"), on="XLA Ops")
    seconds = {group.kind: round(group.seconds * 1e6) for group in made.read("v5p").reading.groups}
    assert seconds == {"matmul": 80, "control": 20}


# ---- steps ----


def test_launches_of_the_longest_program_are_steps_and_others_are_named():
    made = Made("tpu", "TPU v5p")
    for step in range(5):
        at = step * 100 * US
        made.run("jit_step(17)", at, 80 * US, OpRole(), on="modules", kind="modules")
        made.run("jit_log(18)", at + 85 * US, 5 * US, OpRole(), on="modules", kind="modules")
        made.run("fusion", at, 80 * US, on="XLA Ops")
        made.run("other", at + 85 * US, 5 * US, on="XLA Ops")
    steps = made.read("v5p").reading.steps
    assert (steps.found_by, steps.count, steps.kept) == ("launches of jit_step", 5, 4)
    assert (steps.median_s, steps.between_s, steps.between) == (100e-6, pytest.approx(20e-6), ("jit_log",))


def layered(made: Made, at: int, layers: int) -> int:
    made.run("embed", at, 2 * US, OpRole("gather", "embedding"))
    for layer in range(layers):
        for place, name in enumerate(("norm", "qkv", "attend", "out", "up", "down")):
            made.run(name, at + (3 + 6 * layer + place) * US, US, OpRole("matmul", "attention" if place < 4 else "mlp"))
    made.run("logits", at + (3 + 6 * layers) * US, 4 * US, OpRole("matmul", "head"))
    return at + (3 + 6 * layers + 4) * US


def test_a_decode_loop_of_hundreds_of_short_steps_is_found_by_its_ops():
    made, at = Made(), 0
    for step in range(300):
        at = layered(made, at, 8) + (step % 3) * US
    steps = made.read().reading.steps
    assert (steps.found_by, steps.count) == ("ops that repeat", 300)
    assert steps.median_s == pytest.approx(56e-6, rel=0.02)


def test_the_layers_of_one_forward_pass_are_not_steps():
    made = Made()
    layered(made, 0, 32)
    steps = made.read().reading.steps
    assert (steps.count, steps.kept) == (1, 1)
    assert "one step" in steps.found_by
    without = Made()  # the same where nobody knows the sections
    layered(without, 0, 32)
    without.roles = dict.fromkeys(without.roles, OpRole("matmul"))
    assert without.read().reading.steps.count == 1


def test_a_recording_cut_at_both_ends_keeps_whole_steps_only():
    made, at = Made(), 0
    for _ in range(6):
        at = layered(made, at, 4) + 5 * US
    whole = made.record.made()
    first, last = int(whole.events.start.max() * 0.11), int(whole.events.start.max() * 0.93)
    cut = Made()
    for op, start, length in zip(whole.events.op, whole.events.start, whole.events.duration, strict=True):
        if first <= start < last:
            cut.run(whole.ops[op].name, int(start), int(length), made.roles[int(op)])
    steps = cut.read().reading.steps
    assert steps.spread < 0.02
    assert steps.kept == steps.count >= 3


def test_a_step_that_took_much_longer_is_left_out_and_said():
    made, at = Made(), 0
    for step in range(8):
        made.run("step", at, (400 if step == 3 else 100) * US, on="steps", kind="steps")
        made.run("fusion", at, 90 * US)
        at += (400 if step == 3 else 100) * US
    reading = made.read().reading
    assert reading.step_s == pytest.approx(100e-6)
    assert any("1 of 8 steps took more than 1.5 times" in note for note in reading.notes)
    assert made.read(chosen=3).reading.step_s == pytest.approx(400e-6)
    with pytest.raises(InputError, match="the profile has 8 steps"):
        made.read(chosen=8)


# ---- gaps ----


def test_gaps_by_who_was_late():
    made = Made()
    made.run("step", 0, 3000 * US, on="steps", kind="steps")
    made.run("a", 0, 100 * US, launched=0)
    made.run("b", 105 * US, 100 * US, launched=1 * US)  # there all along: 5 us between kernels
    made.run("c", 250 * US, 100 * US, launched=248 * US)  # the host was slow: 45 us
    made.run("d", 450 * US, 50 * US, launched=249 * US)  # asked for in time, and not run: 100 us in the queue
    made.run("e", 1500 * US, 1500 * US, launched=1495 * US)  # the host had stopped for a millisecond
    made.run("cudaDeviceSynchronize", 480 * US, 1000 * US, OpRole(), on="python", kind="host")
    found = made.read()
    gaps = {gap.cause: (round(gap.seconds * 1e6), gap.what) for gap in found.reading.gaps}
    assert {cause: time for cause, (time, _) in gaps.items()} == {BETWEEN: 5, LAUNCH: 45, QUEUED: 100, STALL: 1000}
    assert gaps[STALL][1] == ("cudaDeviceSynchronize",)
    first = find_savings(found.reading, found)[0]
    assert first.seconds == pytest.approx(1e-3)
    assert "read results back less often" in first.why


def test_gaps_are_those_of_a_mean_step_and_add_up_to_its_idle_time():
    """Two steps of 300 us: the first idles for 45 us, the second for 145 us."""
    made = Made()
    for start, late in ((0, 45), (300, 145)):
        made.run("step", start * US, 300 * US, on="steps", kind="steps")
        made.run("a", start * US, 100 * US, launched=start * US)
        second = start + 100 + late
        made.run("b", second * US, (300 - 100 - late) * US, launched=(second - 2) * US)
    reading = made.read().reading
    assert sum(gap.seconds for gap in reading.gaps) == pytest.approx((45 + 145) / 2 * 1e-6)
    assert sum(gap.times for gap in reading.gaps) == 1
    assert max(gap.longest_s for gap in reading.gaps) == pytest.approx(145e-6)


# ---- transfers with several events ----


def test_a_wait_belongs_to_what_is_waited_for_and_bytes_count_once():
    made = Made("tpu", "TPU v6 Lite")
    fetch = OpRole("host", "mlp", what="from the host", hbm_bytes=1e6)
    for step in range(4):
        at = step * 100 * US
        made.run("jit_f", at, 100 * US, OpRole(), on="modules", kind="modules")
        made.run("copy-start.2", at, US, fetch, on="XLA Ops")
        made.run("copy-start.2", at + US, 60 * US, fetch, on="Async", kind="async")
        made.run("fusion", at + US, 20 * US, OpRole("elementwise", "mlp", hbm_bytes=1e6), on="XLA Ops")
        made.run(
            "copy-done.7",
            at + 21 * US,
            40 * US,
            OpRole("copy"),
            on="XLA Ops",
            text="%copy-done.7 = f32[8] copy-done(%copy-start.2)",
        )
        made.run("last", at + 61 * US, 39 * US, OpRole("matmul", "head"), on="XLA Ops")
    found = made.read("v6e")
    assert parts_of(found) == {"compute": 59, "exposed communication": 0, "exposed copies": 41, "idle": 0}
    (line,) = found.reading.communication
    assert (line.kind, line.over, line.sent_bytes, line.times) == ("host", "from the host", 1e6, 1.0)
    assert [round(value * 1e6) for value in (line.exposed_s, line.seconds)] == [41, 61]
    host = next(group for group in found.reading.groups if group.kind == "host")
    assert (round(host.seconds * 1e6), round(host.exposed_s * 1e6)) == (61, 41)
    assert host.bytes_per_s == pytest.approx(line.bus_bytes_per_s)
    op = next(one for one in found.reading.ops if one.name == "copy-start.2")
    assert op.share == pytest.approx(op.exposed_s / found.reading.step_s)


# ---- beside a plan ----


@pytest.fixture(scope="module")
def planned() -> ExpectedStep:
    return expected_step(Request("train", "llama3-8b", "h100:8", "fsdp=8,remat=block", 8, 4096), "dragonscale", "")


def played(expected: ExpectedStep, slower: dict[str, float]) -> Made:
    """A recording of exactly what the ledger says, with some kinds of lines slower."""
    sections = {"embed": "embedding", "head": "head", "scores": "attention"}
    made, at = Made("gpu", "NVIDIA H100 80GB HBM3"), 0
    for number, line in enumerate(expected.lines):
        part = sections.get(line.section, sections.get(line.part, line.part))
        kind, section = ("elementwise", "optimizer") if line.kind == "optimizer" else (line.kind, part)
        group = tuple(range(8)) if line.moves else ()
        role = OpRole(
            kind,
            section,
            line.phase,
            "",
            "bf16",
            line.flops or None,
            line.hbm_bytes or None,
            line.wire_bytes or None,
            group,
        )
        times = round(line.times)
        # a line's op stands once, with the time of all its runs
        role = OpRole(
            role.kind,
            role.section,
            role.phase,
            "",
            "bf16",
            (role.flops or 0) * times,
            (role.hbm_bytes or 0) * times,
            (role.wire_bytes or 0) * times,
            group,
        )
        length = round(line.total("exposed_s") * 1e9 * slower.get(line.kind, 1.0))
        made.run(f"op {number}", at, length, role)
        at += length
    return made


def test_a_recording_of_the_ledger_itself_agrees_with_it(planned: ExpectedStep):
    found = played(planned, {}).read("h100", mesh=planned.mesh)
    lines = beside(planned, found, found.reading.groups, 0.0)
    assert found.reading.step_s == pytest.approx(planned.seconds, rel=1e-3)
    assert sum(line.expected_s for line in lines) == pytest.approx(planned.seconds)
    assert max(abs(line.difference_s) for line in lines) < 1e-3 * planned.seconds
    assert {line.section for line in lines if line.kind == "all_gather"} == {"fsdp"}
    assert not [line.why for line in lines if line.why]
    assert found.reading.matmul_flops == pytest.approx(
        sum(line.planned_flops or 0 for line in lines if line.kind in ("matmul", "attention"))
    )


def test_what_is_slower_than_planned_comes_first_with_its_rate(planned: ExpectedStep):
    found = played(planned, {"attention": 3.0}).read("h100", mesh=planned.mesh)
    lines = beside(planned, found, found.reading.groups, 0.0)
    first = find_savings(found.reading, found, lines)[0]
    meant = sum(
        line.total("exposed_s") for line in planned.lines if line.kind == "attention" and line.phase == "backward"
    )
    assert first.what.startswith("attention backward")
    assert first.seconds == pytest.approx(2 * meant, rel=0.01)
    assert "33% of the expected rate" in first.why


def test_layers_of_a_graph_that_was_launched_at_once_are_not_steps():
    made, at = Made(), 0
    for step in range(3):
        for layer in range(16):
            for place, name in enumerate(("norm", "qkv", "attend", "down")):
                made.run(name, at + (4 * layer + place) * US, US, OpRole("matmul"), launched=step * 100 * US)
        at += 100 * US
    steps = made.read().reading.steps
    assert steps.count == 3
    assert steps.median_s == pytest.approx(100e-6)
