"""Flags that several commands share, read at the edge."""

from typing import Annotated

from cyclopts import Parameter

from dragonscale.errors import InputError, shorten

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print the answer as JSON.")]
Plot = Annotated[str | None, Parameter(name="--plot", help="Write a chart to this file: .png, .svg, .html or .json.")]
Verify = Annotated[
    bool,
    Parameter(name="--verify", negative="", help="Compile the best plan with XLA and compare (see dscale verify)."),
]
Sizes = Annotated[str, Parameter(name="--sizes", help="Sizes of named dims, such as B=1024,D=8192.")]
On = Annotated[str, Parameter(name="--on", help="A chip (v5e) or a slice (v5p:8x16x16, h100:4096, mychip.toml:4x4).")]
MeshText = Annotated[str, Parameter(name="--mesh", help="Mesh axes, slowest first, such as X=4,Y=8.")]


def read_sizes(text: str) -> dict[str, int]:
    """`B=1024,D=8k` as numbers."""
    from dragonscale.units import parse_count

    sizes: dict[str, int] = {}
    for part in text.split(",") if text.strip() else []:
        name, equals, size = part.partition("=")
        if not equals or not name.strip():
            raise InputError(
                f"In --sizes {shorten(text)} the part {shorten(part)} is not a size; write it as 'B=1024'."
            )
        sizes[name.strip()] = parse_count(size.strip(), f"the size of {name.strip()}")
        if sizes[name.strip()] < 1:
            raise InputError(
                f"In --sizes {shorten(text)} the dim {name.strip()} has size 0; a dim has at least one element."
            )
    return sizes


def check_ending(plot: str | None) -> None:
    """Refuse a chart that could not be written by its name, before anything is computed."""
    if plot is not None:
        from dragonscale.rooflines.chart import check_chart

        check_chart(plot)
