"""What a collective is held against: the wires that its group has, and no others; and the chip that a driver's name
means."""

import numpy as np
import pytest

from dragonscale.evidence.profiles.groups import moves, wire_rate
from dragonscale.evidence.profiles.per_op import OpTotals, StepOps
from dragonscale.evidence.profiles.recording import Recorder
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.hardware.driver_names import chip_named, nearest_chip


def test_a_group_along_one_axis_of_a_torus_has_the_links_of_that_axis() -> None:
    piece, mesh = parse_slice("v5p:4x4x4"), {"fsdp": 16, "tensor": 4}
    link = piece.chip.network.link  # pyright: ignore[reportAttributeAccessIssue]
    tensor, fsdp = tuple(range(4)), tuple(range(0, 64, 4))
    assert wire_rate(piece.chip, tensor, mesh, piece) == pytest.approx(2 * link)
    assert wire_rate(piece.chip, fsdp, mesh, piece) == pytest.approx(4 * link)
    assert wire_rate(piece.chip, tuple(range(64)), mesh, piece) == pytest.approx(6 * link)
    assert wire_rate(piece.chip, tensor) is None  # how the mesh lies is not known
    assert wire_rate(piece.chip, (0, 1), mesh, piece) is None  # not along whole axes


def test_groups_of_one_form_may_lie_on_two_tiers() -> None:
    chip = load_chip("h100")
    inside, across = 450e9, 50e9
    assert wire_rate(chip, (0, 1)) == wire_rate(chip, (6, 7)) == inside
    assert wire_rate(chip, (7, 8)) == across
    roles = [OpRole("all_gather", group=group, wire_bytes=1e9) for group in ((0, 1), (7, 8))]
    ones = np.ones(2)
    (line,) = moves(
        StepOps(recording=Recorder("").made(), roles=roles, totals=OpTotals(ones, ones, ones, ones), chip=chip)
    )
    assert line.wire_bytes_per_s == pytest.approx(2 / (1 / inside + 1 / across))
    assert line.fraction == pytest.approx((1e9 / inside + 1e9 / across) / 2)


@pytest.mark.parametrize(
    ("device", "memory", "chip", "nearest"),
    [
        ("NVIDIA H100 80GB HBM3", 85e9, "h100", "h100"),
        ("NVIDIA A100-SXM4-40GB", 42.4e9, "a100-40gb", "a100-40gb"),
        ("NVIDIA H100 PCIe", 85e9, "h100-pcie", "h100-pcie"),
        ("NVIDIA H100 NVL", 100e9, "h100-nvl", "h100-nvl"),
        ("NVIDIA H800 PCIe", 85e9, "", "h800"),
        ("NVIDIA RTX A1000", 8.5e9, "", ""),
        ("NVIDIA GH200 480GB", 102e9, "gh200", "gh200"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 17e9, "rtx4090-laptop", "rtx4090-laptop"),
        ("NVIDIA GeForce RTX 3080 Ti Laptop GPU", 17e9, "", "rtx3080ti"),
    ],
)
def test_a_device_is_a_chip_only_by_whole_words(device: str, memory: float, chip: str, nearest: str) -> None:
    assert (chip_named(device, memory), nearest_chip(device)) == (chip, nearest)
