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


def check_ending(plot: str | None) -> None:
    """Refuse a chart that could not be written by its name, before anything is computed."""
    if plot is not None:
        from dragonscale.charts import check_chart

        check_chart(plot)
