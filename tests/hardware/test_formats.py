"""What chips can multiply and what they can only store, and the memory that programs find: published facts."""

from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.physics.hardware import chip_names, load_chip

CHIPS = {
    "v100": {"fp16": "native", "bf16": "", "fp8": "", "int4": "weights", "nvfp4": ""},
    "a100": {"bf16": "native", "tf32": "native", "int8": "native", "fp8": "weights", "nvfp4": "weights"},
    "a100-40gb": {"bf16": "native", "fp8": "weights"},
    "t4": {"fp16": "native", "bf16": "", "int8": "native", "fp8": "weights", "mxfp4": ""},
    "a10g": {"bf16": "native", "int8": "native", "fp8": "weights"},
    "rtx3090": {"bf16": "native", "fp8": "weights", "nvfp4": "weights"},
    "l4": {"fp8": "native", "mxfp8": "weights"},
    "h20": {"fp8": "native", "int4": "weights"},
    "gh200": {"fp8": "native", "nvfp4": "weights"},
    "rtxpro6000": {"fp8": "native", "nvfp4": "native", "int4": "weights"},
    "mi325x": {"fp8": "native", "nvfp4": ""},
    "l40s": {"fp8": "native", "int4": "native", "mxfp8": "weights"},
    "h100": {"fp8": "native", "f8": "native", "mxfp8": "weights", "nvfp4": "weights", "fp4": "weights", "mxfp6": ""},
    "h200": {"fp8": "native", "int4": "weights"},
    "b200": {
        "fp8": "native",
        "mxfp8": "native",
        "mxfp6": "native",
        "mxfp4": "native",
        "nvfp4": "native",
        "int4": "weights",
    },
    "gb300": {"nvfp4": "native", "int8": "native", "fp4": "native"},
    "mi300x": {"fp8": "native", "mxfp8": "", "mxfp4": "weights", "nvfp4": ""},
    "mi355x": {"fp8": "native", "mxfp8": "native", "mxfp4": "native", "nvfp4": "weights"},
    "v3": {"bf16": "native", "fp32": "native", "fp16": "", "int8": "weights", "fp8": ""},
    "v4": {"int8": "native", "fp8": ""},
    "v5e": {"int8": "native", "int4": "native", "fp8": "weights"},
    "v5p": {"fp8": "native"},
    "tpu7x": {"fp8": "native", "int8": "weights", "mxfp4": "weights"},
}
VISIBLE = {
    "h100": 79.18,
    "h200": 139.8,
    "gb200": 184.31,
    "mi300x": 191.98,
    "v5e": 15.75,
    "t4": 14.56,
    "v5p": 95.74,
    "tpu7x": 189.5,
}


@pytest.mark.parametrize(("chip", "dtype", "how"), [(c, d, how) for c, row in CHIPS.items() for d, how in row.items()])
def test_formats(chip: str, dtype: str, how: str) -> None:
    assert load_chip(chip).format(dtype) == how


def test_block_scaled_fp4_of_blackwell_ultra() -> None:
    """NVIDIA states the half more over Blackwell for nvfp4 only."""
    for name in ("b300", "gb300"):
        chip = load_chip(name)
        assert chip.peak("nvfp4") == chip.peak("fp4") > chip.peak("mxfp4") == 2 * chip.peak("mxfp8")


@pytest.mark.parametrize("name", chip_names())
def test_programs_find_nearly_what_the_datasheet_means(name: str) -> None:
    """Datasheets write GB for what is close to GiB; runtimes keep less than a tenth of it."""
    chip = load_chip(name)
    kept = 0.65 if chip.unified else 0.92  # macOS and Windows keep up to a third of a shared memory
    assert kept * chip.hbm.capacity < chip.visible < 1.024**3 * chip.hbm.capacity
    if name in VISIBLE:
        assert chip.visible == pytest.approx(VISIBLE[name] * 2**30)


def test_visible_memory_follows_a_changed_capacity(tmp_path: Path) -> None:
    chip = load_chip("h100")
    grown = chip.with_facts(**{"memory.hbm.capacity": 2 * chip.hbm.capacity})
    assert grown.visible == pytest.approx(2 * chip.visible)
    stated = chip.with_facts(**{"memory.hbm.capacity": 100e9, "memory.hbm.visible": 98e9})
    assert stated.visible == 98e9
    assert chip.reading("book").visible == chip.hbm.capacity
    path = tmp_path / "own.toml"
    path.write_text('base = "h100"\nname = "own"\ntitle = "Own"\n[memory.hbm]\ncapacity = "96GB"\n')
    assert load_chip(str(path)).visible == 96e9


def test_a_file_without_formats_has_those_of_its_rates(tmp_path: Path) -> None:
    path = tmp_path / "plain.toml"
    path.write_text(
        'name = "plain"\ntitle = "Plain"\nkind = "gpu"\n[matrix]\nbf16 = "1TFLOP/s"\nfp8 = "2TFLOP/s"\n'
        '[memory.hbm]\ncapacity = "10GB"\nbandwidth = "1TB/s"\n'
        '[[levels]]\nname = "node"\ndegree = 8\nbandwidth = "100GB/s"\nlatency = "1us"\n'
    )
    chip = load_chip(str(path))
    found = [chip.format(dtype) for dtype in ("bf16", "fp8", "mxfp8", "int4", "fp16")]
    assert found == ["native", "native", "native", "weights", ""]
    path.write_text(path.read_text() + '[formats]\nnative = ["fp5"]\n')
    with pytest.raises(InputError, match="names 'fp5', which is no dtype"):
        load_chip(str(path))
