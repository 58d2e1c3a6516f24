"""What-if chips: written after a chip's name, by a flag or in a file that starts from another."""

import contextlib
import json
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.physics.hardware import Slice, Tree, load_chip, parse_slice, with_changes
from dragonscale.physics.hardware.chip_file import read_chip
from dragonscale.physics.kernels import kernel_profile_for, matmul_seconds
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.plan.plan_file import parse_plan


def test_a_changed_slice_is_read_back_from_its_name() -> None:
    piece = parse_slice("8xH100+HBM=1.5x+nvlink=2x")
    assert str(piece) == "h100+hbm=1.5x+nvlink=2x:8"
    assert parse_slice(str(piece)).chip == piece.chip
    assert piece.chip.hbm.bandwidth == 1.5 * load_chip("h100").hbm.bandwidth
    assert piece.chip.hbm.capacity == load_chip("h100").hbm.capacity


@pytest.mark.parametrize("change", ["flops=2x", "hbm=2x", "nvlink=2x", "network=2x", "latency=0.5x", "bf16=2x"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_better_hardware_is_never_slower(change: str, dtype: str) -> None:
    plan, model = parse_plan(f"fsdp8 tp2 dtype={dtype}"), load_model("llama3-8b")
    before, after = (
        judge_one(make_job(model, parse_slice(on), 64, 4096, "megatron"), plan).seconds
        for on in ("b200:16", with_changes("b200:16", change))
    )
    assert float(after) <= float(before) * (1 + 1e-9)


def test_twice_the_flops_are_twice_as_fast_where_nothing_else_binds() -> None:
    each = [
        matmul_seconds(8192, 8192, 8192, "bf16", kernel_profile_for(load_chip(name)))
        for name in ("h100", "h100+flops=2x")
    ]
    assert each[0] / each[1] == pytest.approx(2.0, rel=0.05)


def test_a_file_that_changes_nothing_is_its_base(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('base = "h100"\nname = "own"\n')
    plan, model = parse_plan("fsdp8"), load_model("llama3-8b")
    own, base = (judge_one(make_job(model, parse_slice(on), 64, 1024), plan).seconds for on in (f"{file}:8", "h100:8"))
    assert own == base


def test_a_file_changes_one_tier_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('base = "h100"\nname = "own"\n[[levels]]\nname = "node"\nbandwidth = "900GB/s"\n')
    own, base = load_chip(str(file)).network, load_chip("h100").network
    assert isinstance(own, Tree)
    assert isinstance(base, Tree)
    assert own.levels[0].bandwidth == 2 * base.levels[0].bandwidth
    assert own.levels[0].degree == base.levels[0].degree
    assert own.levels[1:] == base.levels[1:]


WRONG = {
    "unknown": ("h100+nvlnk=2x:8", "did you mean 'nvlink'"),
    "no value": ("h100+hbm=:8", "NAME=VALUE"),
    "nothing": ("h100+hbm=0x:8", "factor"),
    "not a number": ("h100+hbm=nan:8", "not a number"),
    "another dimension": ("h100+hbm=5s:8", "bandwidth"),
    "twice": ("h100+hbm=2x+hbm=2x:8", "twice"),
    "not there": ("h100+ici=2x:8", "has no ici"),
    "too many chips": ("h100:8000000000000", "more than"),
    "no chip": ("h100:00", "at least one chip"),
    "odd cores": ("v5p-7", "even"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_changes_and_slices_are_refused(name: str) -> None:
    text, says = WRONG[name]
    with pytest.raises(InputError, match=says):
        parse_slice(text)


READ = {
    "8xh100": "h100:8",
    "H100x8": "h100:8",
    "v6e-256": "v6e:16x16",
    "v5p-8": "v5p:2x2x1",
    "v4-8": "v4:2x2x1",
    "v5litepod-16": "v5e:4x4",
    "tpu7x-128": "tpu7x:4x4x4",
    "V5E:4X4": "v5e:4x4",
    "h100:0000000008": "h100:8",
}


@pytest.mark.parametrize("text", READ)
def test_slices_are_read_as_people_write_them(text: str) -> None:
    assert str(parse_slice(text)) == READ[text]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory.hbm]\nbandwidth", '"0GB/s"'),
        ("memory.hbm]\ncapacity", "[1.0, 2.0]"),
        ("matrix]\nbf16", '"0TFLOP/s"'),
        ("matrix]\nbf16", '"1e308EFLOP/s"'),
        ('[levels]]\nname = "node"\ndegree', "-8"),
        ("host]\nchips", "0"),
    ],
)
def test_numbers_of_a_chip_file_are_checked(field: str, value: str, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'base = "h100"\nname = "own"\n[{field} = {value}\n')
    with pytest.raises(InputError):
        load_chip(str(file))


def test_a_slice_as_an_object_is_changed_too() -> None:
    piece = with_changes(parse_slice("h100:8"), "hbm=2x")
    assert isinstance(piece, Slice)
    assert str(piece) == "h100+hbm=2x:8"


def _places(table: object, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of a chip file, tables and what is in them; of its sources and tiers only the whole."""
    if isinstance(table, dict):
        for key, value in table.items():
            yield (*at, key)
            yield from _places(value, (*at, key)) if key != "sources" else ()


def _with(table: dict[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A table with another value at one place."""
    key, *rest = place
    return {**table, key: _with(table[key], tuple(rest), value) if rest else value}


@pytest.mark.parametrize("value", [5, True, 1.5, "", [], {}], ids=str)
@pytest.mark.parametrize("name", ["h100", "v5e"])
def test_a_chip_file_with_anything_anywhere_is_read_or_refused_in_a_sentence(
    name: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tomllib.loads((resources.files("dragonscale.physics.hardware") / "chips" / f"{name}.toml").read_text())
    for number, place in enumerate(_places(whole)):
        with contextlib.suppress(InputError):
            read_chip(_with(whole, place, value), "whole.toml")
        own = tmp_path / f"own{number}.toml"
        own.write_text(f'base = "{name}"\n{".".join(place)} = {json.dumps(value)}\n')
        try:
            load_chip(str(own))
        except InputError:
            continue
        assert main(["chips", str(own)]) == 0, place  # what is read can be shown
        capsys.readouterr()


@pytest.mark.parametrize("value", ["5", "[]", "[128.0, 0.0]", "[128.0]", '"128"'])
def test_a_systolic_array_has_two_sides(value: str, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(f'base = "v5e"\nstructure.mxu = {value}\n')
    with pytest.raises(InputError, match=r"structure\.mxu"):
        load_chip(str(own))


@pytest.mark.parametrize("lacking", ["capacity", "bandwidth"])
def test_main_memory_has_a_capacity_and_a_bandwidth(lacking: str) -> None:
    whole = tomllib.loads((resources.files("dragonscale.physics.hardware") / "chips" / "h100.toml").read_text())
    hbm = {key: value for key, value in whole["memory"]["hbm"].items() if key != lacking}
    with pytest.raises(InputError, match=f"no {lacking} in"):
        read_chip(_with(whole, ("memory", "hbm"), hbm), "own.toml")
