"""What runs out of memory in a step of reinforcement learning, and what would help: cases that people reported."""

from dragonscale.commands.questions.rl import RlQuestion
from dragonscale.commands.rl.ask_rl import ask
from dragonscale.commands.rl.rl_records import RlReport
from dragonscale.listener import Listener


def asked(model: str, on: str, stack: str, **flags: object) -> RlReport:
    """The answer to `dscale rl`."""
    return ask(RlQuestion(model=model, on=on, stack=stack, **flags), Listener())  # pyright: ignore[reportArgumentType]


def test_an_engine_that_stays_takes_its_share_from_the_trainer() -> None:
    """github.com/huggingface/trl/issues/2688: a 1B model does not fit L4s beside an engine with 0.9 of the memory, and
    a smaller share is what helps."""
    report = asked("llama3.2-1b", "l4:4", "trl", memory_fraction=0.9)
    assert report.best is None
    assert report.plans[0].engine_stays_bytes > 20e9
    assert next(remedy.flags for remedy in report.remedies) == {"memory_fraction": "0.3"}
    assert asked("llama3.2-1b", "l4:4", "trl").best is not None


def test_adapters_need_an_engine_of_whole_weights_beside_them() -> None:
    """github.com/verl-project/verl/issues/4963: LoRA of a 7B does not fit one RTX 3090."""
    report = asked("qwen2.5-7b", "rtx3090:1", "verl", method="lora", prompt="512", output="512")
    assert report.best is None
    assert "the engine needs" in report.shortage


def test_ring_attention_is_no_default() -> None:
    """github.com/OpenRLHF/OpenRLHF/issues/887: answers of 36k tokens do not fit 24 H100s by OpenRLHF's defaults."""
    report = asked("qwen2.5-7b", "h100:24", "openrlhf", prompt="1024", output="36864", samples=8)
    assert report.best is None
    assert any("ring_attn_size" in remedy.what for remedy in report.remedies)


def test_the_memory_of_hosts_can_be_what_is_short() -> None:
    """github.com/verl-project/verl/issues/224: 96 GB for eight workers of a 7B are too little, 1 TB is enough."""
    flags = {"prompt": "512", "output": "1024"}
    assert asked("qwen2.5-7b", "a100:8", "verl", host_memory="96GB", **flags).best is None
    assert asked("qwen2.5-7b", "a100:8", "verl", host_memory="1TB", **flags).best is not None
