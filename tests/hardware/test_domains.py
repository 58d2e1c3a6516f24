"""GPUs of racks that are one NVLink domain, in the sizes that can be rented."""

import pytest

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Tree, parse_slice, parse_target
from dragonscale.physics.hardware.slices import Slice

DOMAINS = {4: 72, 8: 72, 32: 72, 36: 72, 64: 72, 72: 72, 96: 48, 128: 64, 144: 72, 192: 64, 256: 64, 512: 64, 576: 72}


def domain(piece: Slice) -> int:
    assert isinstance(piece.chip.network, Tree)
    return piece.chip.network.levels[0].degree


@pytest.mark.parametrize(("chips", "size"), DOMAINS.items())
@pytest.mark.parametrize("name", ["gb200", "gb300"])
def test_domains(name: str, chips: int, size: int) -> None:
    piece = parse_slice(f"{name}:{chips}")
    assert parse_target(f"{name}:{chips}") == (piece.chip, piece)
    assert (str(piece), piece.chips, domain(piece)) == (f"{name}:{chips}", chips, size)


def test_a_part_of_a_rack_has_its_share_of_the_network() -> None:
    whole, part = parse_slice("gb200:144").chip, parse_slice("gb200:128").chip
    assert isinstance(whole.network, Tree)
    assert isinstance(part.network, Tree)
    for one, other in zip(whole.network.levels[1:], part.network.levels[1:], strict=True):
        assert other.bandwidth / 64 == pytest.approx(one.bandwidth / 72)
    changed = part.with_facts(**{"memory.hbm.bandwidth": 9e12})
    assert changed.network == part.network


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gb200:10", r"beyond one tray, they come in whole trays of 4. Possible: gb200:8, gb200:12\."),
        ("gb200:76", r"equal parts of racks, 36 to 72 GPUs in whole trays of 4. Possible: gb200:72, gb200:80\."),
        ("h100:12", r"whole nodes of 8. Possible: h100:8, h100:16\."),
    ],
)
def test_what_cannot_be_had(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_slice(text)
