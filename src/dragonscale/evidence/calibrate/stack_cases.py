"""What is timed to settle a stack: steps of training, prompts and single tokens of our own program, from
`stack_cases.toml`."""

import functools
import tomllib
from importlib import resources

import msgspec


class TrainCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step of training: `passes` microbatches of `microbatch` sequences of `seq` tokens, AdamW."""

    use: str
    model: str
    seq: int
    microbatch: int
    passes: int
    remat: str
    capacity: float = 0.0

    @property
    def key(self) -> str:
        """What tells cases apart."""
        return f"train {self.model} {self.passes}x{self.microbatch}x{self.seq} {self.remat} {self.capacity:g}"


class ServeCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`prefill` of `batch` prompts of `length` tokens, or `decode` of a token each behind `length` others."""

    use: str
    model: str
    kind: str
    batch: int
    length: int
    capacity: float = 0.0

    @property
    def key(self) -> str:
        """What tells cases apart."""
        return f"{self.kind} {self.model} {self.batch}x{self.length} {self.capacity:g}"


Case = TrainCase | ServeCase
_TINY = "num_hidden_layers=2&hidden_size=64&intermediate_size=128&vocab_size=512&num_attention_heads=4&num_key_value_heads=2&head_dim=16"


def small_cases() -> tuple[Case, ...]:
    """A few of a model that a CPU runs in a blink: a trial of the whole way."""
    fit, other = f"llama3.2-1b?{_TINY}", f"qwen3-0.6b?{_TINY}"
    return (
        TrainCase("fit", fit, 64, 2, 2, "block"),
        ServeCase("fit", fit, "decode", 2, 32),
        ServeCase("fit", fit, "prefill", 2, 32),
        TrainCase("left out", other, 64, 2, 1, "none"),
        ServeCase("left out", other, "decode", 2, 32),
    )


@functools.cache
def cases() -> tuple[Case, ...]:
    """All of them, in the order in which they are timed.

    >>> {case.use for case in cases()} == {"fit", "seen", "left out"}
    True
    """
    text = (resources.files("dragonscale.evidence.calibrate") / "stack_cases.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    return (
        *msgspec.convert(tables["train"], tuple[TrainCase, ...]),
        *msgspec.convert(tables["serve"], tuple[ServeCase, ...]),
    )
