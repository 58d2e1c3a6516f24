"""Measurements are kept as they are made: a run that was stopped goes on, another machine's file is refused."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.cases import BenchCase, Machine, all_cases, read_measurements, small_cases
from dragonscale.evidence.calibrate.measuring import measure
from dragonscale.evidence.calibrate.timing import Bench, Clocked
from dragonscale.listener import Listener
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.driver_names import chip_named


class ReckonedBench(Bench):
    """A device whose times are reckoned: FLOPs and bytes at its rates."""

    def __init__(self, device: str = "NVIDIA H200", stop_after: int = 10**9) -> None:
        self.device, self.stop_after, self.done = device, stop_after, list[str]()

    def machine(self) -> Machine:
        return Machine(self.device, 1, "gpu", {"jax": "0.11.2"}, "jax", "2026-11-16")

    def dtypes(self) -> Sequence[str]:
        return ("bf16",)

    def prepare(self, case: BenchCase) -> Any:
        if case.kind == "experts":
            raise MemoryError("out of memory")
        return case

    def measure(self, prepared: Any) -> Clocked:
        if len(self.done) == self.stop_after:
            raise KeyboardInterrupt
        self.done.append(prepared.id)
        return Clocked(3e-6 + prepared.flops / 5e14 + prepared.moved / 4e12, 0.01, 5)


def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    path, cases = tmp_path / "m.jsonl", small_cases("bf16")
    stopped = ReckonedBench(stop_after=5)
    with pytest.raises(KeyboardInterrupt):
        measure(stopped, cases, path, 60, Listener())
    assert [row.case.id for row in read_measurements(path).rows] == stopped.done
    with path.open("ab") as file:
        file.write(b'{"line":"case","kind":"mat')  # what a crash leaves
    after = ReckonedBench()
    found = measure(after, cases, path, 60, Listener())
    assert not set(after.done) & set(stopped.done)
    assert {row.case.id for row in found.rows} == {case.id for case in cases}
    assert [row.kind for row in found.rows if row.failed] == ["experts"]
    assert "out of memory" in next(row.failed for row in found.rows if row.failed)
    assert len(found.good) == len(cases) - 1
    last = ReckonedBench()
    assert len(measure(last, cases, path, 60, Listener()).rows) == len(cases)
    assert not last.done


def test_no_time_measures_nothing_and_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    assert not measure(ReckonedBench(), small_cases("bf16"), path, -1, Listener()).rows
    with pytest.raises(InputError, match=r"another device \(NVIDIA H200; here: NVIDIA H100\)"):
        measure(ReckonedBench("NVIDIA H100"), small_cases("bf16"), path, 60, Listener())


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.sampled_from(
                [
                    b'{"line":"machine","device":"x","devices":1,"platform":"gpu","software":{},"timed_with":"jax","date":""}',
                    b'{"line":"case","kind":"matmul","sizes":[1,2],"dtype":"bf16"}',
                    b'{"line":"case","kind":"x","sizes":[],"dtype":""}',
                    b'{"line":"case","kind":"copy","sizes":[-5],"dtype":"bf16"}',
                    b"[" * 5000,
                ]
            ),
        ),
        max_size=4,
    )
)
def test_any_file_is_read_or_refused_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("m") / "m.jsonl"
    path.write_bytes(b"\n".join(lines))
    with contextlib.suppress(InputError):
        read_measurements(path)


def test_every_stretch_of_the_list_has_every_kind() -> None:
    cases = all_cases(("bf16", "fp8"), devices=2)
    assert len({case.id for case in cases}) == len(cases)
    first = {case.kind for case in cases[:40]}
    assert first >= {"matmul", "matmul_dx", "matmul_dw", "attention", "attention_both", "decode", "experts", "copy"}
    rows = [case.sizes[0] for case in cases[:120] if case.kind == "matmul"]
    assert {1, 8192} <= {*rows}
    assert any(one % 2 for one in rows if one > 1)
    assert {case.what for case in cases if case.kind == "collective"} >= {"all_reduce", "all_to_all"}


def test_devices_are_known_by_their_drivers_names() -> None:
    names = {
        "NVIDIA H200": "h200",
        "NVIDIA H100 80GB HBM3": "h100",
        "NVIDIA A100-SXM4-80GB": "a100",
        "TPU v5 lite": "v5e",
        "TPU v5p": "v5p",
        "TPU v6 lite": "v6e",
        "NVIDIA B200": "b200",
    }
    for device, chip in names.items():
        assert load_chip(chip_named(device)).kin == chip, device
    assert not chip_named("cpu")
