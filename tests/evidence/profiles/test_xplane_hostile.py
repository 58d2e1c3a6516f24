"""Files that are no profiles, or were: one sentence, and neither the memory nor the time of a machine."""

import gzip
import random
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.hlo_proto import ProgramBytes
from dragonscale.evidence.profiles.protobuf import Broken
from dragonscale.evidence.profiles.xplane import read
from dragonscale.listener import Listener
from tests.evidence.profiles import xplanes
from tests.evidence.profiles.xplanes import field, number

GPU = Path(__file__).parent / "jax_gpu_step.xplane.pb.gz"
HUGE = field(1, field(2, "/device:TPU:0") + b"\x1a" + number(1 << 40))
DEEP = b"\x08\x0d"
for _ in range(300):
    DEEP = b"\x10\x0d" + field(4, DEEP)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        HUGE,
        xplanes.plane("/device:TPU:0", xplanes.line("XLA Ops", b"\x22\xff\xff\xff\x7f")),
        xplanes.plane("/device:TPU:0", xplanes.line("XLA Ops", xplanes.event(1, 1 << 63, 1))),
        xplanes.plane("/device:TPU:0", xplanes.line("XLA Ops", *[xplanes.event(1, 5, 1 << 62)] * 50)),
        xplanes.plane("/device:TPU:0", xplanes.line("XLA Ops", at=-(1 << 63))),
        xplanes.plane("/device:TPU:0", xplanes.line("XLA Ops", field(4, b"\x22\x7f\x08"))),
        b"\x0b\x0b\x0b",
        b"",
    ],
)
def test_what_is_no_profile_is_told_in_one_sentence(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.xplane.pb"
    path.write_bytes(data)
    with pytest.raises(InputError) as told:
        read(path, Listener())
    assert str(told.value).count("\n") == 0
    assert len(str(told.value)) < 300


def test_a_file_cut_anywhere_is_told(tmp_path: Path) -> None:
    whole = xplanes.tpu()
    path = tmp_path / "cut.xplane.pb"
    for size in range(1, len(whole), 37):
        path.write_bytes(whole[:size])
        _read(path)
    packed = GPU.read_bytes()
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match="cannot be read"):
        read(path, Listener())


def test_programs_nested_without_end_are_told() -> None:
    instruction = field(1, "a") + field(2, "tuple") + field(3, DEEP) + field(35, 1)
    module = field(1, "m") + field(6, 1) + field(3, field(1, "c") + field(2, instruction) + field(5, 1) + field(6, 1))
    data = field(1, module)
    with pytest.raises(Broken, match="nested"):
        _ = ProgramBytes(data, (0, len(data))).module


def test_numbers_of_seventy_bits_are_cut_to_sixty_four(tmp_path: Path) -> None:
    linked = field(
        4, field(1, 1) + field(4, field(1, xplanes.STATS.index("run_id") + 1) + b"\x20" + b"\xff" * 9 + b"\x7f")
    )
    path = tmp_path / "long.xplane.pb"
    for count in (1, 100):  # one by one, and as columns
        path.write_bytes(xplanes.plane("/device:TPU:0", xplanes.line("XLA Ops", *[linked] * count)))
        assert read(path, Listener()).events.run.tolist() == [-1] * count


def test_events_without_number_take_no_unbounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "many.xplane.pb"
    path.write_bytes(xplanes.plane("/device:TPU:0", xplanes.line("XLA Ops", b"\x22\x00" * 150_000)))
    tracemalloc.start()
    started = time.process_time()
    recording = read(path, Listener())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(recording.events.start) == 150_000
    assert peak < 120e6
    assert time.process_time() - started < 60


def _read(path: Path) -> None:
    """Read all that can be asked for; only an `InputError` may come instead."""
    with suppress(InputError):
        recording = read(path, Listener())
        for module in recording.programs.values():
            assert module.entry


def _broken(data: bytes, chance: random.Random) -> bytes:
    """The same with some bytes changed, a piece left out, doubled or cut off."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 3, 20))):
        at = chance.randrange(len(found))
        kind = chance.randrange(6)
        if kind <= 2:
            found[at] = chance.choice((0, 0x22, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 3:
            del found[at : at + chance.randrange(1, 20)]
        elif kind == 4:
            found[at:at] = found[at : at + chance.randrange(1, 200)]
        else:
            found[at : at + 8] = b"\xff" * 8
    return bytes(found if chance.random() < 0.9 else found[: chance.randrange(1, len(found) + 1)])


@pytest.mark.parametrize(("seed", "tries"), [(1, 120), pytest.param(2, 5000, marks=pytest.mark.slow)])
def test_broken_profiles_are_read_or_told(seed: int, tries: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    real = xplanes.shortened(gzip.decompress(GPU.read_bytes()))
    path = tmp_path / "fuzzed.xplane.pb"
    for _ in range(tries):
        path.write_bytes(_broken(chance.choice((real, real, xplanes.tpu())), chance))
        _read(path)
