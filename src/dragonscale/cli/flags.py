"""Flags that several commands share, read at the edge."""

import math
import re
from types import UnionType
from typing import Annotated, Any, get_args

from cyclopts import Parameter

from dragonscale.errors import InputError, shorten

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print the answer as JSON.")]
Plot = Annotated[
    str | None, Parameter(name="--plot", help="Write a chart to this file: .svg, .png, .pdf, .html or .json.")
]
Verify = Annotated[
    bool,
    Parameter(name="--verify", negative="", help="Compile the best plan with XLA and compare (see dscale verify)."),
]
Sizes = Annotated[str, Parameter(name="--sizes", help="Sizes of named dims, such as B=1024,D=8192.")]
On = Annotated[str, Parameter(name="--on", help="A chip (v5e) or a slice (v5p:8x16x16, h100:4096, mychip.toml:4x4).")]
MeshText = Annotated[str, Parameter(name="--mesh", help="Mesh axes, slowest first, such as X=4,Y=8.")]


MOST_NUMBER = 1e18


def read_flag(kind: Any, tokens: Any) -> Any:
    """A flag's text as its type: whole numbers are not rounded, and numbers are finite."""
    import cyclopts

    kinds = set(get_args(kind)) if isinstance(kind, UnionType) else {kind}
    text = tokens[0].value.strip() if len(tokens) == 1 else ""
    flag = getattr(tokens[0], "keyword", "") or "The number" if tokens else ""
    if int in kinds and not re.fullmatch(r"[-+]?[0-9][0-9_,]{0,20}(\.0*)?", text):
        return _counted(text, flag)
    if float in kinds:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not -MOST_NUMBER <= number <= MOST_NUMBER:
            raise InputError(f"{flag} is {shorten(text)}; write a number, such as 0.5.")
        return number
    if int in kinds:
        return int(text.partition(".")[0].replace(",", "").replace("_", ""))
    return cyclopts.convert(kind, [token.value for token in tokens])


def _counted(text: str, flag: str) -> int:
    from dragonscale.units import parse_count

    return parse_count(text, flag)


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
        if name.strip() in sizes:
            raise InputError(f"In --sizes {shorten(text)} the dim {name.strip()} is given twice.")
        sizes[name.strip()] = parse_count(size.strip(), f"the size of {name.strip()}")
        if sizes[name.strip()] < 1:
            raise InputError(
                f"In --sizes {shorten(text)} the dim {name.strip()} has size 0; a dim has at least one element."
            )
    return sizes


def check_ending(plot: str | None) -> None:
    """Refuse a chart that could not be written by its name, before anything is computed."""
    if plot is not None:
        from dragonscale.charts import check_chart

        check_chart(plot)
