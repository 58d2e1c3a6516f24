"""`ds.calc`: arithmetic with units, chips, models and closed forms by name.

>>> import dragonscale as ds
>>> ds.calc("1e12 FLOP / v5e.bf16").text
'5.08ms = 0.00507614 s'
>>> round(ds.calc("2*B*D*F/v5e.bf16 = (2*B*D+2*D*F+2*B*F)/v5e.hbm_bandwidth; D=8192; F=28672").value, 1)
249.7
>>> ds.calc("llama3-70b.kv_bytes_per_token * 8192", to="GiB").text
'2.5 GiB = 2,684,354,560 bytes'
"""

from dragonscale.app.calc.ask import ask
from dragonscale.app.questions.facts import CalcQuestion
from dragonscale.faces.library.asking import asking

calc = asking(
    "calc",
    CalcQuestion,
    ask,
    """
    The value of an expression with units, in which chips, slices, models and closed forms stand by name.

    Returns a `CalcReport`: `.value` in base units, `.unit`, `.text`, `.formula` where letters are left open, and
    `.names` with what each name stood for and its source.
    """,
)
