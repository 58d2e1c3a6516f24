"""Engines as data: groups that inherit, settings that are refused, and errors that are told by engine."""

from pathlib import Path

import msgspec
import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.inference import inference_cases
from dragonscale.serving.engine.engine import Engine, adjust, engines, load_engine
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import deploy


def test_settings_are_inherited_at_any_depth() -> None:
    first, second, third = (load_engine(f"trtllm-0{name}") for name in ("", ".9", ".5"))
    assert first.kernels.gap_s == second.kernels.gap_s == third.kernels.gap_s == 4e-6
    assert (second.kernels.matmul, third.kernels.matmul) == (1.1, 1.1)
    assert (second.kernels.shared_heads, third.kernels.shared_heads) == ((8,), (1,))
    assert load_engine("dragonscale").host.sample_s == load_engine("torch-compiled").host.sample_s


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `speed`"):
        msgspec.convert({"kernels": {"speed": 2.0}}, Engine)
    with pytest.raises(InputError, match=r"cannot be set like this: .*unknown field `speed`"):
        adjust(load_engine("vllm"), kernels={"speed": 2.0})
    with pytest.raises(InputError, match=r"write it as 'memory\.share=0\.85'"):
        load_engine("vllm,share=0.85")
    with pytest.raises(InputError, match="no serving engine 'vlm'"):
        load_engine("vlm")


def test_every_engine_says_why() -> None:
    assert all(engine.why for engine in engines().values())


def test_what_is_validated_is_what_is_shipped() -> None:
    """Rows of measurements name an engine, and settings of a launch can be given to every command in the same words."""
    measured = Path(__file__).parents[2] / "docs" / "data" / "measured" / "inference.csv.gz"
    used = {case.row.engine for case in inference_cases(measured)[0]}
    assert "trtllm-bench" in used
    assert used <= set(engines())
    launched = load_engine("trtllm,memory.share=0.95,scheduling.max_sequences=2048,host.stream_s=0")
    assert launched.scheduling == load_engine("trtllm-bench").scheduling
    assert launched.memory == load_engine("trtllm-bench").memory


def test_a_share_of_what_is_free() -> None:
    """TensorRT-LLM's fraction is one of what is left beside weights and workspace, vLLM's one of the whole."""
    room = capacity(deploy("llama3-70b", "h100:8", "tensor=8", "trtllm"))
    free = room.hbm - room.weights - room.working - room.reserve
    assert room.cache == pytest.approx(0.9 * free)
    assert capacity(deploy("llama3-70b", "h100:8", "tensor=8", "vllm")).usable == pytest.approx(0.9 * room.hbm)
