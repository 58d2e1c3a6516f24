"""Every chip of the catalogue against bounds of sense, the table of drivers, and what people type."""

import re
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.physics.collectives.cost import EXACT, KINDS, collective_time
from dragonscale.physics.collectives.group import Switches
from dragonscale.physics.collectives.profile import expected_time
from dragonscale.physics.collectives.profile_file import profile_for
from dragonscale.physics.hardware.catalogue import candidates, chip_names, load_chip
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
    "a800": 81920 * MIB,
    "l40": 46068 * MIB,
    "rtx8000": 48601 * MIB,
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
        ("RTX 4090 laptop", "rtx4090-laptop"),
        ("rtx 2080 ti", "rtx2080ti"),
        ("4070 ti super", "rtx4070ti-super"),
        ("GeForce RTX 4070 SUPER", "rtx4070-super"),
        ("rtx 5060 ti 16gb", "rtx5060ti"),
        ("RTX 4060 Ti 8GB", "rtx4060ti-8gb"),
        ("rtx 5090 24gb laptop", "rtx5090-laptop"),
        ("3080 12GB", "rtx3080-12gb"),
        ("a40", "a40"),
        ("NVIDIA A800-SXM4-80GB", "a800"),
        ("Quadro RTX 8000", "rtx8000"),
        ("NVIDIA A30", "a30"),
        ("NVIDIA L40", "l40"),
        ("V100 16GB", "v100-16gb"),
        ("jetson agx thor", "thor"),
        ("Jetson AGX Orin 32GB", "orin-32gb"),
        ("strix halo", "strix-halo"),
        ("ryzen ai max+ 395 128GB", "strix-halo"),
        ("arc b60", "b60"),
        ("M2 Pro 16 GB", "m2pro-16gb"),
        ("m2-pro-32gb", "m2pro"),
        ("M4 Max 128GB", "m4max"),
        ("MacBook Pro M3 Max 64GB", "m3max-64gb"),
        ("MacBook Pro 14 inch M3 Max 36GB unified memory", "m3max-30core-36gb"),
        ("M1 Max 24-core GPU", "m1max-24core"),
        ("Mac Studio M2 Ultra", "m2ultra"),
        ("Mac mini M4 Pro 48GB", "m4pro-48gb"),
        ("Mac Studio", "m3ultra"),
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
        ("2x RTX 3090", "rtx3090:2"),
        ("4x RTX 4060 Ti 8GB", "rtx4060ti-8gb:4"),
        ("m2pro-16gb", "m2pro-16gb:1"),
        ("M2 Pro 16GB+hbm=2x:1", "m2pro-16gb+hbm=2x:1"),
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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("M2 Pro 24GB", "the Apple M2 Pro has 16GB or 32GB"),
        ("m3 max 192gb", "the Apple M3 Max has 36GB, 48GB, 64GB, 96GB or 128GB"),
        ("rtx 4090 48gb", r"the NVIDIA GeForce RTX 4090 has 24GB; of a modified one write rtx4090\+memory=SIZE"),
        ("a100 60gb", "the NVIDIA A100 SXM has 40GB or 80GB"),
    ],
)
def test_a_memory_that_is_not_sold_names_those_that_are(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_chip(text)
    assert load_chip("rtx4090+memory=48GB").hbm.capacity == 48e9


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("m6", "near it are m5, m5max, m5pro, m4"),
        ("rtx3050", "near it are rtx3060, rtx3060ti, rtx3070"),
        ("a20", "near it are a30, a10, a10g, a40, a100"),
        ("h300", "near it are h20"),
        ("TPU", "near it are tpu7x, v6e, v5p"),
        ("Jetson", "near it are thor, orin"),
    ],
)
def test_a_chip_that_is_not_there_names_its_series(text: str, near: str) -> None:
    with pytest.raises(InputError, match=near):
        load_chip(text)


@pytest.mark.parametrize("text", ["cpu", "Ryzen 7950X", "epyc 9654", "i9-14900k"])
def test_a_processor_is_no_chip(text: str) -> None:
    with pytest.raises(InputError, match=r"no CPU is one\. Name the GPU or TPU, whose host can hold a part of a model"):
        load_chip(text)


def test_members_of_a_family_have_the_rates_that_their_makers_print() -> None:
    """Dense rates with sums in fp32, in TFLOP/s, from datasheets that no family file takes its rates from."""
    printed = {
        ("rtx4060", "fp32"): 15.1,
        ("rtx4080", "fp32"): 48.7,
        ("rtx4070ti-super", "fp32"): 44.1,
        ("rtx3060", "fp32"): 12.7,
        ("rtx3090ti", "fp32"): 40.0,
        ("rtx5070ti", "fp32"): 43.9,
        ("rtx5080", "fp4"): 1801 / 2,
        ("rtx5070", "fp4"): 988 / 2,
        ("rtxpro5000", "fp4"): 2064 / 2,
        ("rtx4000ada", "fp32"): 26.7,
        ("a40", "bf16"): 149.7,
        ("a5000", "fp16"): 222.2 / 2,
        ("rtx2080ti", "fp16"): 53.8,
        ("titanrtx", "fp16"): 130.5,
        ("rtx8000", "fp16"): 130.5,
        ("a30", "bf16"): 165.0,
        ("a30", "int8"): 330.0,
        ("a30", "fp32"): 10.3,
        ("p100", "fp16"): 18.7,
        ("mi100", "fp16"): 184.6,
        ("mi210", "bf16"): 181.0,
        ("mi60", "fp16"): 29.5,
        ("rx9070xt", "int8"): 779 / 2,
        ("b580", "int8"): 233,
        ("b60", "int8"): 197,
        ("thor", "fp4"): 2070 / 2,
        ("orin", "int8"): 170 / 2,
        ("m1max", "fp32"): 10.6,
        ("m4", "fp32"): 4.0,
    }
    for (name, dtype), teraflops in printed.items():
        unit = "vector" if dtype == "fp32" else "matrix"
        assert load_chip(name).peak(dtype, unit) == pytest.approx(teraflops * 1e12, rel=0.012), (name, dtype)


def test_the_size_of_the_memory_is_all_that_differs() -> None:
    small, usual = load_chip("m2pro-16gb"), load_chip("m2pro")
    assert (small.like, small.title, small.kin) == ("m2pro", "Apple M2 Pro 16GB", "m2pro")
    assert small.visible < small.hbm.capacity < usual.visible
    assert small.matrix == usual.matrix
    assert small.bandwidth("hbm") == usual.bandwidth("hbm")
    slower = load_chip("m3max-30core")
    assert (slower.bandwidth("hbm"), load_chip("m3max").bandwidth("hbm")) == (300e9, 400e9)


def test_searches_leave_out_what_nobody_rents_out() -> None:
    names = {chip.name for chip in candidates()}
    assert {"h100", "rtx4090", "a40", "v100-16gb", "gb10", "h800"} <= names
    assert not names & {"m4max", "rtx4060", "rtx4090-laptop", "strix-halo", "m1max-24core", "rubin"}


def test_the_memory_of_a_host() -> None:
    assert load_chip("rtx4070").host_memory_bandwidth == 89.6e9, "two channels of DDR5-5600"
    assert load_chip("m4max").host_memory_bandwidth == 546e9, "CPU and GPU have one memory"
    assert load_chip("h100").host_memory_bandwidth == 307.2e9, "a server's socket"


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
