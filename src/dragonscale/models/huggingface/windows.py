"""Which layers have a sliding window, for those families whose rule is not just every so many layers."""

from collections.abc import Callable

from dragonscale.models.huggingface.fields import Fields

SLIDING = ("full_attention", "sliding_attention")


def windows(f: Fields, n_layers: int, otherwise: Callable[[int], object]) -> list[int | None]:
    """Each layer's window by `layer_types`; without that field, `otherwise` says which layers have one."""
    window = f.optional("sliding_window")
    local = f.either("layer_types", n_layers, SLIDING, lambda number: window and otherwise(number))
    return [window if each else None for each in local]


def all_but_every(step: int) -> Callable[[int], bool]:
    """True for layers that are not the last of each `step`.

    >>> [all_but_every(3)(number) for number in range(4)]
    [True, True, False, True]
    """
    return lambda number: step > 0 and (number + 1) % step != 0


def _qwen(f: Fields, n_layers: int, moe: bool = False) -> list[int | None]:
    """With `use_sliding_window`, from layer `max_window_layers` on; in Qwen 2's MoE on every other layer before it."""
    used, first = f.flag("use_sliding_window"), f.natural("max_window_layers")
    spans = windows(f, n_layers, lambda i: used and (i % 2 == 0 and i < first if moe else i >= first))
    return spans if used else [None] * n_layers


def _from_layer(f: Fields, n_layers: int) -> list[int | None]:
    first = f.natural("max_window_layers")
    return windows(f, n_layers, lambda number: number >= first)


def _without_rope(f: Fields, n_layers: int) -> list[int | None]:
    """SmolLM 3: where a window is used, the layers that do not rotate have it."""
    used, step = f.flag("use_sliding_window"), f.natural("no_rope_layer_interval")
    rotates = f.numbers("no_rope_layers") or [int((i + 1) % step != 0) if step else 1 for i in range(n_layers)]
    return windows(f, n_layers, lambda number: used and number < len(rotates) and not rotates[number])


def _pattern(f: Fields, n_layers: int) -> list[int | None]:
    """EXAONE's `sliding_window_pattern`: a string of kinds, or how many layers it spans."""
    pattern = f.value("sliding_window_pattern")
    step = len(pattern) if isinstance(pattern, str) else f.natural("sliding_window_pattern")
    return windows(f, n_layers, all_but_every(step))


RULES: dict[str, Callable[[Fields, int], list[int | None]]] = {
    "everywhere": lambda f, n_layers: [f.optional("sliding_window")] * n_layers,
    "where_used": lambda f, n_layers: (
        [f.optional("sliding_window") if f.flag("use_sliding_window") else None] * n_layers
    ),
    "all": lambda f, n_layers: windows(f, n_layers, lambda _: True),
    "all_but_first_of_four": lambda f, n_layers: windows(f, n_layers, lambda number: number % 4),
    "qwen": _qwen,
    "qwen_moe": lambda f, n_layers: _qwen(f, n_layers, moe=True),
    "from_layer": _from_layer,
    "without_rope": _without_rope,
    "pattern": _pattern,
}
