"""Servers that run another engine's workers, such as Dynamo: the engine behind them, and what they add to it."""

import msgspec

from dragonscale.plan.settings import shipped_table


class Wrapper(msgspec.Struct, frozen=True):
    """A server in front of engines: the one that is taken where nothing is said, and the others that it runs."""

    title: str
    engine: str
    also: tuple[str, ...]
    adds: str
    source: str

    @property
    def note(self) -> str:
        """How an answer for it is to be read."""
        others = " or ".join(self.also)
        text = f"{self.title} runs engines and adds {self.adds}"
        return f"{text}: answered with {self.engine}; --engine {others} is another."


def wrapper_of(text: str) -> Wrapper | None:
    """The wrapper that an engine's name stands for; None of an engine.

    >>> wrapper_of("Dynamo").engine, wrapper_of("vllm")
    ('vllm', None)
    """
    row = shipped_table("serving.engine", "wrappers.toml").get(text.partition(",")[0].strip().lower())
    return msgspec.convert(row, Wrapper) if row is not None else None
