"""One palette and two themes for every picture: a colour stands for a meaning, wherever it is drawn.

A chart says `@compute`, `@tensor` or `@ink` instead of a colour; a theme, light or dark, puts the colours in when the
chart is shown or saved. `@compute:2` is a tint of the same meaning nearer to the background (another kind of matmul),
`@compute:-1` one nearer to the text, `@on:compute` the black or white that can be read on it.

The colours were searched for: hues by meaning (compute is blue, HBM amber, each mesh axis its own), and within them the
lightness and chroma that keep any two of one kind of chart apart for normal sight and for protan, deutan and tritan
sight as simulated by Machado, Oliveira and Fernandes (2009), as distances in Oklab. `tests/charts` holds them to that.

>>> LIGHT.colour("@ink"), LIGHT.colour("@on:compute"), LIGHT.colour("@compute") != DARK.colour("@compute")
('#1B1F24', '#FFFFFF', True)
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dragonscale.errors import unknown

ThemeName = Literal["light", "dark"]
TITLE, LABEL, SMALL = 21, 14, 13
"""Sizes of text in pixels of a figure about 900 wide: on a slide of that width they are points."""
TIME_ROLES = ("compute", "recompute", "hbm", "tensor", "fsdp", "data", "context", "expert", "pipe", "overhead")
"""What takes time: the matrix units, the same work again, HBM, the network by mesh axis, everything else."""
MEMORY_ROLES = ("weights", "gathered", "optimizer", "gradients", "activations", "cache", "workspace", "framework")
"""What fills memory."""
SERIES = ("compute", "tensor", "fsdp", "hbm", "data", "recompute", "context", "overhead")
"""Colours of lines and points that have no meaning of their own, in order."""
TINTS = (0.0, 0.34, 0.58, 0.74)
"""How far a tint is mixed into the background: `@compute`, `@compute:1` and so on."""
SHADE = 0.42
"""How far `@compute:-1` is mixed with the text's colour."""


@dataclass(frozen=True)
class Theme:
    """Colours by meaning on one background."""

    name: ThemeName
    background: str
    ink: str
    muted: str
    grid: str
    colours: Mapping[str, str]

    def colour(self, token: str) -> str:
        """The colour of a token such as `@compute`, `@compute:1` or `@on:compute:1`.

        >>> LIGHT.colour("@background")
        '#FFFFFF'
        """
        if token.startswith("@on:"):
            return readable_on(self.colour("@" + token[4:]))
        role, _, tint = token.removeprefix("@").partition(":")
        base = getattr(self, role) if role in ("background", "ink", "muted", "grid") else self.colours[role]
        if tint == "-1":
            return mixed(base, self.ink, SHADE)
        return mixed(base, self.background, TINTS[min(int(tint or 0), len(TINTS) - 1)])


def _channels(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]


def mixed(colour: str, other: str, part: float) -> str:
    """One colour with a part of another in it.

    >>> mixed("#000000", "#FFFFFF", 0.5)
    '#808080'
    """
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * part):02X}" for a, b in pairs)


def luminance(colour: str) -> float:
    """Relative luminance as the Web's guidelines for contrast define it, 0 to 1."""
    linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in _channels(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def readable_on(colour: str) -> str:
    """Black or white, whichever has the higher contrast on a colour.

    >>> readable_on("#FFD966"), readable_on("#1B3A6B")
    ('#000000', '#FFFFFF')
    """
    light = luminance(colour)
    return "#FFFFFF" if 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 else "#000000"


_TABLE = tomllib.loads(Path(__file__).with_name("theme.toml").read_text(encoding="utf-8"))
LIGHT, DARK = Theme("light", **_TABLE["light"]), Theme("dark", **_TABLE["dark"])
THEMES = {"light": LIGHT, "dark": DARK}


def unlike(roles: Sequence[str]) -> list[str]:
    """Roles as given, but where two parts have the same, the later gets another tint of it.

    >>> unlike(["compute", "compute", "hbm", "compute:1"])
    ['compute', 'compute:2', 'hbm', 'compute:1']
    """
    unlike_: list[str] = []
    for index, role in enumerate(roles):
        base = role.partition(":")[0]
        others = [f"{base}:{tint}" for tint in (2, 1, 3, -1)]
        tints = [role, *others, base, *(f"overhead:{n}" for n in range(1, 4)), *SERIES]
        free = (tint for tint in tints if tint not in unlike_ and (tint == role or tint not in roles[index + 1 :]))
        unlike_.append(next(free, role))
    return unlike_


def theme_named(name: str) -> Theme:
    """A theme by its name."""
    if name not in THEMES:
        raise unknown("theme", name, THEMES)
    return THEMES[name]


def resolved(spec: Any, theme: Theme) -> Any:
    """A specification with the theme's colours for its tokens; rows of data are left as they are.

    >>> resolved({"mark": {"color": "@ink"}, "data": {"values": [{"plan": "@ink"}]}}, LIGHT)
    {'mark': {'color': '#1B1F24'}, 'data': {'values': [{'plan': '@ink'}]}}
    """
    if isinstance(spec, dict):
        return {key: value if key == "values" else resolved(value, theme) for key, value in spec.items()}
    if isinstance(spec, list | tuple):
        return [resolved(value, theme) for value in spec]
    return theme.colour(spec) if isinstance(spec, str) and spec.startswith("@") else spec


def config(theme: Theme) -> dict[str, Any]:
    """What Vega-Lite calls a configuration, in a theme's colours. TOML has no null: a view has no frame."""
    return resolved(_TABLE["config"], theme) | {"view": {"stroke": None}}
