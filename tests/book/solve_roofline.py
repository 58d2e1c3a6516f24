"""Solutions of the chapter on rooflines."""

from typing import Any

import sympy

from dragonscale.notation import parse_einsum
from dragonscale.roofline import Cost, Rates, einsum_cost, roofline
from tests.book.casebook import solves


def symbols(names: str) -> list[Any]:
    return list(sympy.symbols(names, positive=True))


@solves("roofline.t_math_v6e")
def t_math(given: dict[str, Any]) -> dict[str, Any]:
    cost = Cost(flops={("matrix", "bf16"): given["flops"]})
    return {"t_math": roofline(cost, Rates({("matrix", "bf16"): given["peak"]})).lower}


@solves("roofline.matmul_cost")
def matmul_cost(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum("bf16[B,D] @ bf16[D,F]")
    sizes = {name: given[name] for name in "BDF"}
    return {
        "flops": einsum_cost(line, sizes).total_flops,
        "bytes_read": einsum_cost(line, sizes, counted=(0, 1)).bytes["hbm"],
        "bytes_written": einsum_cost(line, sizes, counted=(2,)).bytes["hbm"],
    }
