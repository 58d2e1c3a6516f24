"""Every chip of the catalogue against bounds of sense, the table of drivers, and what people type."""

import re
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.physics.collectives.cost import EXACT, KINDS, collective_time
from dragonscale.physics.collectives.group import Switches
from dragonscale.physics.collectives.profile import expected_time
from dragonscale.physics.collectives.profile_file import profile_for
from dragonscale.physics.hardware.catalogue import chip_names, load_chip
from dragonscale.physics.hardware.chip import Torus, Tree
from dragonscale.physics.hardware.chip_file import TEMPLATE
from dragonscale.physics.hardware.machine_names import machines
from dragonscale.physics.hardware.slices import parse_slice

MIB = 2**20
DRIVER = {
    # bytes in all, as nvidia-smi, rocm-smi or the runtime prints them
    "t4": 15360 * MIB,
    "a10": 23028 * MIB,
    "a10g": 23028 * MIB,
    "l4": 23034 * MIB,
    "rtx3090": 24576 * MIB,
    "rtx4090": 24564 * MIB,
    "rtx5090": 32607 * MIB,
    "a6000": 49140 * MIB,
    "rtx6000ada": 49140 * MIB,
    "l40s": 46068 * MIB,
    "rtxpro6000": 97887 * MIB,
    "v100": 32768 * MIB,
    "a100-40gb": 40960 * MIB,
    "a100": 81920 * MIB,
    "h100": 81559 * MIB,
    "h100-pcie": 81559 * MIB,
    "h800": 81559 * MIB,
    "h100-nvl": 95830 * MIB,
    "h20": 97871 * MIB,
    "gh200": 97871 * MIB,
    "h20-3e": 143771 * MIB,
    "h200": 143771 * MIB,
    "h200-nvl": 143771 * MIB,
    "b200": 183359 * MIB,
    "gb200": 189471 * MIB,
    "b300": 275040 * MIB,
    "gb300": 284208 * MIB,
    "mi300x": 206141652992,
    "mi350x": 309220868096,
    "mi355x": 309220868096,
    "m2ultra": 192 * 2**30,
    "m3ultra": 512 * 2**30,
    "gb10": 128 * 2**30,
    "gaudi3": 131072 * MIB,
    "trainium2": 96 * 2**30,
}


@pytest.mark.parametrize("name", DRIVER)
def test_no_capacity_is_above_what_a_driver_reports(name: str) -> None:
    chip = load_chip(name)
    assert 0.7 * DRIVER[name] < chip.visible <= DRIVER[name]


@pytest.mark.parametrize("name", chip_names())
def test_numbers_are_within_bounds_of_sense(name: str) -> None:
    chip = load_chip(name)
    dtype = "bf16" if "bf16" in chip.matrix else "fp16"
    assert 23 < chip.intensity(dtype) < 950, "FLOPs per byte of memory: a GTX 1080 Ti's 23.4 to a Jetson Thor's 945"
    seconds = chip.hbm.capacity / chip.bandwidth("hbm")
    assert 0.012 < seconds < 0.7, "to read all of the memory: 13 ms of a Rubin to 0.63 s of an M3 Ultra"
    if isinstance(chip.network, Tree):
        node = chip.network.levels[0]
        assert node.bandwidth * (1 if node.degree == 1 else 2) < chip.bandwidth("hbm"), "links are slower than memory"
        assert node.peers <= node.degree - 1
        assert not node.bridge or node.bandwidth < node.bridge < chip.bandwidth("hbm")
    if chip.price is not None:
        dollars = chip.price / (chip.peak(dtype) / 1e15)
        assert 0.9 < dollars < 35, "an hour of a bf16 PFLOP/s: $1.7 of an RTX 3090 to $33 of a TPU v2"
    if chip.power:
        assert 0.04e12 < chip.peak(dtype) / chip.power < 6e12, "FLOP/s a watt"


@pytest.mark.parametrize("name", [name for name in chip_names() if isinstance(load_chip(name).network, Tree)])
def test_wider_groups_never_have_slower_links(name: str) -> None:
    """A group has what its own chips' links carry, and expectations stay above the bound."""
    chip = load_chip(name)
    profile = profile_for(chip)
    for size in (2, 4, 8, 16):
        group = Switches(size, chip.network.levels)
        for kind in KINDS:
            bound = collective_time(kind, 1e9, group, EXACT).bandwidth
            assert 0 < bound <= expected_time(kind, 1e9, group, profile)


def test_nodes_without_a_switch() -> None:
    def rate(name: str, size: int, stride: int = 1, kind: str = "all_gather") -> float:
        group = Switches(size, load_chip(name).network.levels, stride)
        part = 1 if kind == "permute" else (size - 1) / size
        return part / collective_time(kind, 1.0, group, EXACT).bandwidth

    assert [rate("mi300x", size) / 1e9 for size in (2, 4, 8)] == pytest.approx([64, 192, 448])
    assert [rate("v100", size) / 1e9 for size in (2, 4, 8)] == pytest.approx([100 / 3, 100, 150])
    assert [rate("h100", size) / 1e9 for size in (2, 4, 8)] == pytest.approx([450, 450, 450])
    assert [rate("h100-nvl", size) / 1e9 for size in (2, 4, 8)] == pytest.approx([300, 64, 64])
    assert rate("h100-nvl", 2, stride=2) == pytest.approx(64e9), "two cards of different bridges"
    assert rate("mi300x", 8, kind="permute") == pytest.approx(64e9), "a neighbour is at the end of one link"
    assert rate("rtx3090-nvlink", 2) > rate("rtx3090", 2)


def test_an_all_reduce_of_two_mi300x() -> None:
    """Published: 47.7 GB/s on two GPUs, 313 GB/s of bus bandwidth on eight (stas00/ml-engineering)."""
    chip = load_chip("mi300x")
    two, eight = (
        2 * (size - 1) / size * 4294967296 / expected_time("all_reduce", 4294967296, Switches(size, levels), profile)
        for size, levels, profile in ((size, chip.network.levels, profile_for(chip)) for size in (2, 8))
    )
    assert two == pytest.approx(47.7e9, rel=0.1)
    assert eight == pytest.approx(313e9, rel=0.1)


def test_cards_without_direct_copies_reach_half_of_pcie() -> None:
    def seconds(name: str) -> float:
        chip = load_chip(name)
        return expected_time("all_reduce", 1e9, Switches(2, chip.network.levels), profile_for(chip))

    assert seconds("rtx4090") > 1.5 * seconds("a6000")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("4090", "rtx4090"),
        ("GeForce RTX 4090", "rtx4090"),
        ("5090", "rtx5090"),
        ("H100-SXM5-80GB", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("A100 80GB", "a100"),
        ("A100_40GB", "a100-40gb"),
        ("H100 PCIe", "h100-pcie"),
        ("H100NVL", "h100-nvl"),
        ("RTX 6000 Ada", "rtx6000ada"),
        ("RTX A6000", "a6000"),
        ("DGX Spark", "gb10"),
        ("m3ultra", "m3ultra"),
        ("M2 Ultra", "m2ultra"),
        ("trn2", "trainium2"),
        ("Gaudi 3", "gaudi3"),
        ("AMD Instinct MI350X", "mi350x"),
        ("TPUv5e", "v5e"),
    ],
)
def test_names_that_people_type(text: str, name: str) -> None:
    assert load_chip(text).name == name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p5.48xlarge", "h100:8"),
        ("16xP5en.48xlarge", "h200:128"),
        ("a3-ultragpu-8g", "h200:8"),
        ("Standard_ND96isr_H100_v5", "h100:8"),
        ("BM.GPU.MI300X.8", "mi300x:8"),
        ("ct5p-hightpu-4t", "v5p:2x2x1"),
        ("DGX B200", "b200:8"),
        ("v5litepod-256", "v5e:16x16"),
        ("v5p-512", "v5p:4x8x8"),
        ("V6E-64", "v6e:8x8"),
        ("tpu7x-128", "tpu7x:4x4x4"),
        ("p5.48xlarge+hbm=2x", "h100+hbm=2x:8"),
    ],
)
def test_machines_and_clouds_names(text: str, found: str) -> None:
    assert str(parse_slice(text)) == found


def test_every_machine_is_a_slice_of_chips_that_exist() -> None:
    assert all(str(parse_slice(name)) == found for name, found in machines().items())
    with pytest.raises(InputError, match="name the slice that they form"):
        parse_slice("4xct5p-hightpu-4t")


@pytest.mark.parametrize(("text", "near"), [("rtx40900", "rtx4090"), ("h1oo", "h100"), ("h100-sxm6", "h100")])
def test_a_near_miss_names_the_nearest(text: str, near: str) -> None:
    with pytest.raises(InputError, match=f"did you mean '{near}'"):
        load_chip(text)


def test_oversubscribed_fabrics() -> None:
    plain, thin = load_chip("h100"), load_chip("h100+oversubscription=4")
    assert thin.network.levels[2].bandwidth == pytest.approx(plain.network.levels[2].bandwidth / 4)
    assert thin.network.levels[:2] == plain.network.levels[:2]
    slow, quick = (
        collective_time("all_to_all", 1e9, Switches(128, chip.network.levels, 8), EXACT).bandwidth
        for chip in (thin, plain)
    )
    assert slow > 1.5 * quick
    with pytest.raises(InputError):
        load_chip("v5e+oversubscription=4")


def test_sites_over_a_wan() -> None:
    piece = parse_slice("h100:512*2@100Gb/s")
    assert str(piece) == "h100+wan=512@100Gb/s:1024"
    assert parse_slice(str(piece)).chip.network == piece.chip.network
    assert [level.degree for level in piece.chip.network.levels] == [8, 32, 2, 0]
    inside, across = (Switches(size, piece.chip.network.levels) for size in (512, 1024))
    seconds = [collective_time("all_reduce", 1e9, group, EXACT).bandwidth for group in (inside, across)]
    assert seconds[1] == pytest.approx(2 * 1e9 / 2 / 12.5e9), "each byte leaves a site once and comes in once"
    assert seconds[1] > 10 * seconds[0]
    profile = profile_for(piece.chip)
    small = [expected_time("all_reduce", 8.0, group, profile) for group in (inside, across)]
    assert small[1] > small[0] + 2 * 10e-3, "10 ms there, 10 ms back"
    for text in ("h100+wan=12@100Gb/s:16", "h100+wan=512:1024", "v5e+wan=16@1Gb/s:4x4", "h100+wan=0@1Gb/s:8"):
        with pytest.raises(InputError, match="not CHIPS@BANDWIDTH"):
            parse_slice(text)
    with pytest.raises(InputError, match=r"h100:512\*2@100Gb/s for 2 sites"):
        parse_slice("h100:512*2")


OWN = "matrix:\n  bf16: 320TFLOP/s\nmemory:\n  hbm: {capacity: 32GB, bandwidth: 1TB/s}\n"


def test_a_chip_file_in_yaml_says_what_it_leaves_out(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    chip = load_chip(str(path))
    assert (chip.name, chip.title, chip.peak("bf16"), chip.peak("fp32", "vector")) == ("own", "own", 320e12, 20e12)
    assert "leaves out title, kind, vector, host, pcie, levels; taken: " in chip.assumed
    assert str(parse_slice(f"{path}:8").chips) == "8"
    path.write_text(OWN + "kind: gpu\ntitle: Mine\npcie: 64GB/s\n")
    assert "leaves out vector, host, levels; taken: " in load_chip(str(path)).assumed


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("matrix:\n  fp8: 1TFLOP/s\n", r"no bf16 or fp16 in \[matrix\], no capacity in \[memory.hbm\], no bandwidth"),
        ("a: &x [1]\nb: *x\n", "is not valid YAML"),
        ("- 1\n", "is not valid YAML"),
        (OWN.replace("320TFLOP/s", "320"), "has no unit"),
        (OWN + "speed: 3\n", "unknown field `speed`; it may have name, title, kind, matrix"),
    ],
)
def test_what_is_wrong_with_a_chip_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "own.yml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        load_chip(str(path))


def test_the_template_is_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "mychip.toml"
    path.write_text(TEMPLATE.read_text())
    chip = load_chip(str(path))
    assert not chip.assumed
    assert (chip.price, chip.power, chip.visible) == (1.5, 400, 44.5 * 2**30)
    assert not re.search(r"^\[(price|pcie)\]", TEMPLATE.read_text(), re.MULTILINE)
    assert not isinstance(chip.network, Torus)
