"""Steps where what was recorded is odd, and recordings that are large in an unusual direction."""

import time

import numpy as np

from dragonscale.evidence.profiles.analysis import analyse
from dragonscale.evidence.profiles.recording import MOST_DEVICES, OpText, Recorder
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.sections import phase_of_scope
from dragonscale.evidence.profiles.steps import device_windows, find_steps, graph_starts
from dragonscale.evidence.xla.hlo_text import read_instruction


def test_a_step_that_is_left_out_hides_no_other() -> None:
    record = Recorder("a trace")
    gpu = record.device("GPU", "gpu")
    steps, stream = record.track(gpu, "steps", "steps"), record.track(gpu, "stream 7", "ops")
    op, work = record.op(OpText("step")), record.op(OpText("kernel"))
    # the second lies half in the first and is left out; the third begins before its end, and after that of the first
    for start, length in ((0, 100), (50, 100), (120, 100), (220, 100)):
        record.event(steps, op, start, length)
        record.event(stream, work, start, 40)
    found = find_steps(record.made(), gpu, [])
    assert found.windows.tolist() == [[0, 120], [120, 220], [220, 320]]


def test_windows_of_what_the_host_asked_for() -> None:
    record = Recorder("a trace")
    stream = record.track(record.device("GPU", "gpu"), "stream 7", "ops")
    op = record.op(OpText("kernel"))
    record.event(record.track(-1, "python", "host"), record.op(OpText("loop")), 1000, 40)
    for launched, start in ((1, 10), (2, 30), (12, 25), (13, 60), (31, 90)):
        record.event(stream, op, start + 1000, 5, launched=launched + 1000)
    opened = np.array([0, 10, 20, 30])
    found = device_windows(record.made(), 0, opened, opened + 10)
    assert found is not None
    # nothing was asked for in the third: it begins where the host's step does
    assert found.tolist() == [[10, 25], [25, 20], [20, 90], [90, 95]]


def test_a_name_of_megabytes_is_cut() -> None:
    text = '%d = f32[8]{0} negate(f32[8]{0} %x), metadata={op_name="jit(f)/' + "allreduce_" * 200_000 + '"}, x=1'
    found = read_instruction(text)
    assert len(found.op_name) == 4000
    assert found.attribute("x") == "1"
    assert phase_of_scope(found.op_name) == ""
    record = Recorder("a trace")
    record.op(OpText("k", scope="a" * 100_000))
    assert len(next(iter(record.ops)).scope) == 4000


def test_very_many_devices_and_streams_are_bounded_and_said() -> None:
    record = Recorder("a trace")
    op = record.op(OpText("kernel"))
    for number in range(MOST_DEVICES + 88):
        device = record.device(f"GPU {number}", "gpu", number)
        for stream in range(7):
            record.event(record.track(device, f"stream {stream}", "ops"), op, 10 * number, 5)
    recording = record.made()
    assert (len(recording.devices), len(recording.tracks)) == (MOST_DEVICES, 4096)
    assert len(recording.events.start) == 7 * MOST_DEVICES
    assert "616 events" in recording.notes[0]
    begun = time.process_time()
    reading = analyse(recording, [OpRole("matmul")], None).reading
    assert reading.devices == MOST_DEVICES
    assert time.process_time() - begun < 3


def test_launches_of_graphs_are_told_by_what_they_ran() -> None:
    launched = np.repeat([5, 9, 3, 12], 3)
    ops, start = np.array([1, 2, 3] * 2 + [4, 4, 4] + [1, 2, 3]), np.arange(12) * 10
    assert graph_starts(ops, start, start + 5, launched).tolist() == [0, 30, 90, 115]
    assert not len(graph_starts(ops, start, start + 5, np.full(12, -1)))
