"""Latent attention as it is decoded: keys and values never expanded.

Prefill and training expand every token's latent into keys and values for all heads. One query per sequence is better
served the other way round: the query is taken through the key expansion, attends to the latents themselves, which all
heads share, and the result is taken through the value expansion. The matmuls are the same, in another order; the cache
is read once instead of once per head.

>>> from dragonscale.models import load_model
>>> block = next(section for section in load_model("deepseek-v3").program().sections if section.name == "block1")
>>> [str(op) for op in absorbed(block).ops if op.function == "attend"]
['attention: Ol[b, t, n, c] = attend(Ql[b, t, n, l], C[b, s, c], Kr[b, s, r])']
"""

from dataclasses import replace

from dragonscale.models.program import Op, Section, parse_ops

_LINES = parse_ops("""
    attention: Qa[b,t,n,c] = Qp[b,t,n,p] · Wkb[c,n,p]
    attention: Ol[b,t,n,c] = attend(Ql[b,t,n,l], C[b,s,c], Kr[b,s,r])
    attention: O[b,t,n,g] = Ol[b,t,n,c] · Wvb[c,n,g]
""")


def absorbed(section: Section) -> Section:
    """The section with its expansions on the query's and the result's side; any other section as it is."""
    if not any(weight.name == "Wkb" for op in section.ops for weight in op.weights):  # keys expanded from a latent
        return section
    ops: list[Op] = []
    for op in section.ops:
        if op.function == "attend":
            ops += _LINES
        elif not (op.output is not None and op.output.name in ("Kp", "V", "K") and op.part == "attention"):
            ops.append(op)
    dims = section.dims | {"l": section.dims["c"] + section.dims["r"]}
    return replace(section, ops=tuple(ops), dims=dims)
