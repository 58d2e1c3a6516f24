"""The palette: colours of one kind of chart can be told apart by everyone, and text on them can be read."""

import itertools
import math

import pytest

from dragonscale.blocks.charts.theme import MEMORY_ROLES, SERIES, THEMES, TIME_ROLES, Theme, luminance

SIGHTS = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Full dichromacy in linear RGB: Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009."""
APART = 0.10
"""Oklab distance; 0.02 is about the least that can be seen, and Okabe and Ito's own palette goes down to 0.08."""


def _oklab(colour: str, sight: str) -> tuple[float, float, float]:
    """Ottosson's Oklab of a colour as someone with this sight sees it."""
    coded = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in coded]
    seen = [min(max(sum(a * b for a, b in zip(row, linear, strict=True)), 0.0), 1.0) for row in SIGHTS[sight]]
    r, g, b = seen
    cone_l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    cone_m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    cone_s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * cone_l + 0.7936177850 * cone_m - 0.0040720468 * cone_s,
        1.9779984951 * cone_l - 2.4285922050 * cone_m + 0.4505937099 * cone_s,
        0.0259040371 * cone_l + 0.7827717662 * cone_m - 0.8086757660 * cone_s,
    )


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
@pytest.mark.parametrize("roles", [TIME_ROLES, MEMORY_ROLES, SERIES], ids=["time", "memory", "series"])
def test_colours_of_a_chart_differ_for_every_sight(theme: Theme, roles: tuple[str, ...]) -> None:
    for one, other in itertools.combinations(roles, 2):
        for sight in SIGHTS:
            far = math.dist(_oklab(theme.colour(f"@{one}"), sight), _oklab(theme.colour(f"@{other}"), sight))
            assert far >= APART, (one, other, sight, far)


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_text_can_be_read(theme: Theme) -> None:
    """4.5 to 1 is what the Web's guidelines (WCAG 2) ask of text."""

    def contrast(one: str, other: str) -> float:
        light, dark = sorted((luminance(one), luminance(other)), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    for text in ("@ink", "@muted", "@limit"):
        assert contrast(theme.colour(text), theme.background) >= 4.5
    for role in (*TIME_ROLES, *MEMORY_ROLES):
        for tint in ("", ":-1", ":1", ":2", ":3"):
            assert contrast(theme.colour(f"@on:{role}{tint}"), theme.colour(f"@{role}{tint}")) >= 4.5
