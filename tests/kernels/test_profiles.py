"""Every constant says where it comes from, every chip has a profile, and bad files are refused in a sentence."""

import pytest

from dragonscale.errors import InputError
from dragonscale.physics.hardware import chip_names, load_chip
from dragonscale.physics.kernels import grouped_matmul_seconds, kernel_profile_for, matmul_seconds
from dragonscale.physics.kernels.dtypes import FORMATS, format_name
from dragonscale.physics.kernels.profile_file import make_profile, profile_files, read_profile, tables_of
from tests.hardware.owned import APPLE, CARDS, OTHER_CARDS

FITTED = ("h100", "h200", "b200")
GENERIC = {"a10", "a10g", "l4", "l40s", "rtx3090", "rtx4090", "rtx5090", "rtxpro6000", "a6000", "rtx6000ada", "gb10"}
GENERIC |= {
    "l40",
    "a6000-nvlink",
    "rtx3090-nvlink",
    "rtxpro6000-ws",
    "gaudi3",
    "trainium2",
    "trainium3",
    *CARDS,
    *APPLE,
    *OTHER_CARDS,
}
"""GPUs that no measured one stands for."""


@pytest.mark.parametrize("name", sorted(profile_files()))
def test_every_table_rests_on_a_listed_source(name: str) -> None:
    file = profile_files()[name]
    assert file.rests_on
    assert file.sources
    for path, raw in tables_of(file).items():
        rest = raw["rests_on"]
        assert rest["source"] in file.sources, path
        if name in FITTED or name == "h200-jax":
            assert rest["rows"] > 0, path
        else:
            assert rest.get("rows", 0) == 0, f"{path} of {name} is not measured"


@pytest.mark.parametrize("name", FITTED)
def test_fitted_tables_say_what_they_miss_on_rows_they_have_not_seen(name: str) -> None:
    rests = kernel_profile_for(name).rests_on
    fitted = [rest for path, rest in rests.items() if path != "stream"]
    assert all(rest.held_out is not None and rest.held_out < 0.2 for rest in fitted)


@pytest.mark.parametrize("name", sorted(profile_files()))
def test_fractions_are_fractions(name: str) -> None:
    file = profile_files()[name]
    for path, raw in tables_of(file).items():
        for key in ("rate", "quantum", "bandwidth", "sustained", "unhidden"):
            assert 0 <= raw.get(key, 1) <= 1, f"{path}.{key}"


@pytest.mark.parametrize("name", chip_names())
def test_every_chip_has_a_profile(name: str) -> None:
    profile = kernel_profile_for(load_chip(name))
    assert profile.measured == (name in FITTED)
    assert (profile.name == "generic-gpu") == (name in GENERIC), "name it under `stands_for` of the nearest profile"
    for dtype in FORMATS:
        if dtype != "fp32" and (dtype != "tf32" or "tf32" in profile.chip.matrix):
            assert 0 < matmul_seconds(512, 512, 512, dtype, profile) < 1


def test_relatives_scale_by_their_datasheets() -> None:
    h100, h800 = kernel_profile_for("h100"), kernel_profile_for("h800")
    assert matmul_seconds(8192, 8192, 8192, "bf16", h800) == matmul_seconds(8192, 8192, 8192, "bf16", h100)
    a100, small = kernel_profile_for("a100"), kernel_profile_for("a100-40gb")
    assert matmul_seconds(1, 16384, 16384, "bf16", small) > 1.25 * matmul_seconds(1, 16384, 16384, "bf16", a100)


def test_a_chip_of_ones_own_keeps_its_family() -> None:
    chip = load_chip("h100")
    faster = chip.with_facts(**{"memory.hbm.bandwidth": 6.7e12})
    taken = matmul_seconds(1, 16384, 16384, "bf16", kernel_profile_for(faster))
    assert taken < 0.6 * matmul_seconds(1, 16384, 16384, "bf16", kernel_profile_for(chip))


@pytest.mark.parametrize(("name", "low", "high"), [("a100", 0.80, 0.90), ("v100", 0.7, 0.9), ("mi300x", 0.45, 0.65)])
def test_worked_out_profiles_reach_what_is_reported(name: str, low: float, high: float) -> None:
    profile = kernel_profile_for(name)
    part = 2 * 8192**3 / matmul_seconds(8192, 8192, 8192, "fp16", profile) / profile.chip.peak("fp16")
    assert low < part < high


@pytest.mark.parametrize("name", ["v5e", "v5p", "v6e"])
def test_tpus_reach_what_the_compiler_estimates(name: str) -> None:
    """XLA's estimated cycles give 88-90% of the peak for large bf16 matmuls; the book says about 95%."""
    profile = kernel_profile_for(name)
    part = 2 * 8192**3 / matmul_seconds(8192, 8192, 8192, "bf16", profile) / profile.chip.peak("bf16")
    assert 0.84 < part < 0.95


def test_tpus_pad_to_their_matrix_unit() -> None:
    v5p, v6e = kernel_profile_for("v5p"), kernel_profile_for("v6e")
    assert matmul_seconds(65536, 130, 8192, "bf16", v5p) == pytest.approx(
        matmul_seconds(65536, 256, 8192, "bf16", v5p), rel=0.1
    )
    half = matmul_seconds(65536, 128, 8192, "bf16", v6e) / matmul_seconds(65536, 256, 8192, "bf16", v6e)
    assert half > 0.8


def test_spellings() -> None:
    assert format_name("BFloat16") == "bf16"
    with pytest.raises(InputError, match="There is no number format 'fp9'; did you mean"):
        format_name("fp9")
    with pytest.raises(InputError, match=r"no implementation of bf16 experts on NVIDIA H100.*triton"):
        grouped_matmul_seconds(1, 1, 1, 1, 1, "bf16", kernel_profile_for("h100"), implementation="cuda")


def broken(**changes: object) -> dict:
    import tomllib
    from importlib import resources

    text = (resources.files("dragonscale.physics.kernels") / "profiles" / "a100.toml").read_text(encoding="utf-8")
    return tomllib.loads(text) | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speed": 1}, "is not right: .*speed"),
        ({"stream": {"launch": "1us", "bandwidth": 0.9}}, "rests stream on None"),
        ({"stream": {"launch": "1us", "rests_on": {"source": "nobody"}}}, "rests stream on 'nobody'"),
    ],
)
def test_bad_files_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_profile(broken(**changes), "mine.toml")


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ({"launch": "1us", "bandwith": 0.9}, "no constant of stream called 'bandwith'; did you mean 'bandwidth'"),
        ({"launch": "1 parsec", "bandwidth": 0.9}, "Stream.launch is '1 parsec'"),
        ({"launch": "1us"}, "The constants of stream are not right"),
    ],
)
def test_bad_constants_are_refused(stream: dict, message: str) -> None:
    file = read_profile(broken(stream=stream | {"rests_on": {"source": "estimate"}}), "mine.toml")
    with pytest.raises(InputError, match=message):
        make_profile(file, load_chip("a100"))


def test_a_file_of_ones_own(tmp_path) -> None:
    from importlib import resources

    text = (resources.files("dragonscale.physics.kernels") / "profiles" / "a100.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("rate = 1.0", "rate = 0.5"), encoding="utf-8")
    mine, usual = kernel_profile_for("a100", str(path)), kernel_profile_for("a100")
    assert matmul_seconds(8192, 8192, 8192, "bf16", mine) > 1.8 * matmul_seconds(8192, 8192, 8192, "bf16", usual)
