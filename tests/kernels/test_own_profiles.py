"""A profile of one's own wherever kernels are timed: named, found in the user's folder, or turned off."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.asked_chips import asked_chips
from dragonscale.errors import InputError
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.kernels import kernel_profile_for, profile_file
from dragonscale.physics.kernels.profile_file import choose

BUILT_IN = Path(profile_file.__file__).parent / "profiles" / "h200.toml"
TRAIN: dict[str, Any] = {
    "model": "llama3-8b",
    "batch": "64seq",
    "seq": 4096,
    "plan": "fsdp8",
    "alone": True,
    "stack": "torchtitan",
}
SERVE: dict[str, Any] = {"model": "llama3-8b", "plan": "tp1", "batch": 16}


def step(**words: Any) -> float:
    best = ds.train(**words).best
    assert best is not None
    return best.step_s


def tpot(**words: Any) -> float:
    best = ds.serve(**words).best
    assert best is not None
    return best.tpot_s


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """The H200's own profile with memory that streams at half the rate."""
    path = tmp_path / "slow.toml"
    path.write_text(BUILT_IN.read_text().replace("bandwidth = 0.88\n", "bandwidth = 0.44\n", 1))
    return str(path)


def test_the_same_constants_give_the_same_times(tmp_path: Path, slow: str) -> None:
    same = str(shutil.copy(BUILT_IN, tmp_path / "same.toml"))
    plain = step(on="h200:8", **TRAIN)
    assert step(on="h200:8", profile=same, **TRAIN) == plain
    assert step(on="h200:8", profile=slow, **TRAIN) > 1.05 * plain
    served = tpot(on="h200:1", **SERVE)
    assert tpot(on="h200:1", profile=same, **SERVE) == served


def test_a_saved_plan_keeps_its_profile(tmp_path: Path, slow: str) -> None:
    found = ds.train(on="h200:8", profile=slow, **TRAIN)
    assert f"h200+profile={slow}:8" in found.headline()
    found.save(str(tmp_path / "plan.toml"))
    assert step(plan=str(tmp_path / "plan.toml"), alone=True) == step(on="h200:8", profile=slow, **TRAIN)


def test_the_users_folder_is_found_and_can_be_turned_off(
    tmp_path: Path, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    plain = asked_chips("h200:8, v5e:4x4", "")
    with pytest.raises(InputError, match="no profile of your own"):
        kernel_profile_for("h200", "own")
    folder = tmp_path / "dragonscale" / "profiles"
    folder.mkdir(parents=True)
    shutil.copy(slow, folder / "h200.toml")
    assert plain == "h200:8, v5e:4x4"
    assert asked_chips("h200:8,v5e:4x4", "") == "h200+profile=own:8,v5e:4x4"
    assert asked_chips("h200+hbm=2x:8", "") == "h200+hbm=2x+profile=own:8"
    assert asked_chips("h200:8", "", "built-in") == "h200+profile=built-in:8"
    assert asked_chips(load_chip("h200"), "").kernels == "own"
    assert asked_chips("any", "") == "any"
    own = kernel_profile_for(load_chip("h200+profile=own"))
    assert own.stream.bandwidth == 0.44
    assert kernel_profile_for(load_chip("h200+profile=built-in")).stream.bandwidth == 0.88
    assert "profile=own" in ds.train(on="h200:8", **TRAIN).headline()
    assert "profile=own" in ds.simulate("llama3-8b", on="h200:1", rate="1/s", requests=20).headline()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"profile": "nowhere.toml"}, "cannot be read"),
        ({"profile": "h20"}, "There is no kernel profile 'h20'"),
        ({"profile": "a,b.toml"}, "none of , "),
        ({"profile": "built-in", "on": "any"}, "chips that are named"),
    ],
)
def test_wrong_profiles_are_told_in_a_sentence(words: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        step(**({"on": "h200:8"} | TRAIN | words))


def test_software_with_kernels_of_its_own_takes_their_profile() -> None:
    assert choose(load_chip("h200"), "jax") == "h200-jax"
    assert choose(load_chip("h100"), "jax") == "h100"
    assert kernel_profile_for("h200", library="jax").measured
    assert choose(load_chip("h200"), "nobody") == choose(load_chip("h200")) == "h200"
    assert choose(load_chip("v5p"), "jax") == "tpu"


@pytest.mark.parametrize(
    ("was", "is_now", "says"),
    [
        ("rate = 1\n", "rate = 0\n", "matmul.bf16.rate"),
        ("rate = 1\n", "rate = nan\n", "matmul.bf16.rate"),
        ('launch = "3.091us"', "launch = -1.0", "matmul.bf16.launch"),
        ("tiles = [[64, 64], [64, 128], [128, 128], [128, 256]]", "tiles = []", "matmul.bf16.tiles"),
        ("tile = 128", 'tile = "wide"', "ttention.bf16.tile"),
        ("[decode.bf16]", "[decode.bf17]", "number format"),
        ('rests_on = { source = "h200"', 'rests_on = { source = "hearsay"', "hearsay"),
        ("quantum = 1\n", "quantum = [1]\n", "matmul.bf16"),
        ("packed = true", "packed = 7", "attention.bf16"),
    ],
)
def test_impossible_constants_are_told_in_a_sentence(tmp_path: Path, was: str, is_now: str, says: str) -> None:
    path, text = tmp_path / "bad.toml", BUILT_IN.read_text()
    assert was in text
    path.write_text(text.replace(was, is_now, 1))
    with pytest.raises(InputError, match=says):
        kernel_profile_for("h200", str(path))
