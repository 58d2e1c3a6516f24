"""Published checkpoints that serve a model: the one for chat, quantised ones, and what those of a format have in common
(`served_checkpoints.toml`).

>>> instruct_repository("meta-llama/Llama-3.1-8B"), instruct_repository("Qwen/Qwen3-32B")
('meta-llama/Llama-3.1-8B-Instruct', 'Qwen/Qwen3-32B')
>>> (
...     quantised_repository("Qwen/Qwen3-235B-A22B", "fp8", "fp8_block"),
...     quantised_repository("Qwen/Qwen3-32B", "int8", "int8"),
... )
('Qwen/Qwen3-235B-A22B-FP8', '')
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dragonscale.tables import beside


def _rows(name: str) -> list[dict[str, Any]]:
    return beside(__file__, "served_checkpoints.toml")[name]


def _repository(rows: Iterable[Mapping[str, Any]], pattern: str, name: str) -> str:
    """The repository of the first row whose pattern the name has; empty where none has."""
    for row in rows:
        if match := re.search(row[pattern], name):
            return row["repository"].format(*match.groups())
    return ""


def instruct_repository(base: str) -> str:
    """The repository for chat of a model whose repository is that before instruction tuning; itself where it is none,
    or none for chat is known."""
    return _repository(_rows("instruct"), "base", base) or base


def quantised_repository(chat: str, weights: str, compute: str) -> str:
    """The repository that has a model for chat with weights of a format, for matmuls in another; empty where none is
    known."""
    wide = "bf16" if compute == "fp16" else compute  # which a launch casts
    rows = [row for row in _rows("quantised") if row["weights"] == weights and wide in row["compute"]]
    return _repository(rows, "model", chat)


def published_weights(chat: str) -> list[str]:
    """The formats of weights in which somebody publishes a model for chat beside its own.

    >>> published_weights("Qwen/Qwen3-32B"), published_weights("microsoft/phi-4")
    (['fp8', 'nvfp4', 'int4'], [])
    """
    return [row["weights"] for row in _rows("quantised") if re.search(row["model"], chat)]


def published_attention(weights: str, latent: bool) -> str:
    """`wide` where published checkpoints with weights of a format keep the attention in 16 bits, `same` where they
    quantise it too, and empty where that is not known.

    >>> (
    ...     published_attention("nvfp4", latent=True),
    ...     published_attention("nvfp4", False),
    ...     published_attention("mxfp4", True),
    ... )
    ('wide', 'same', '')
    """
    match = (row["attention"] for row in _rows("attention") if (row["weights"], row["latent"]) == (weights, latent))
    return next(match, "")


def padded_hidden(name: str, weights: str) -> dict[int, int]:
    """What hidden dims of a model are padded to in its published checkpoints with weights of a format.

    >>> padded_hidden("qwen2.5-72b", "int4"), padded_hidden("qwen2.5-72b", "bf16")
    ({29568: 29696}, {})
    """
    sizes = (row["hidden"] for row in _rows("padded") if row["weights"] == weights and re.search(row["model"], name))
    return dict(next(sizes, ()))
