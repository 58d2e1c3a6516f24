"""`ds.verify`: compile a plan with XLA and lay it beside what was planned.

>>> import dragonscale as ds
>>> found = ds.verify("tensor=2", "llama3.2-1b", on="h100:2", batch=8, seq=512, program="decode")  # doctest: +SKIP
>>> found  # doctest: +SKIP
<Verification: llama3.2-1b on h100:2: a decode step of tensor=2: agrees>
>>> found.peak.planned, found.peak.compiled, found.exit_code  # doctest: +SKIP
"""

from dragonscale.app.questions.verify import VerifyQuestion
from dragonscale.app.verify.ask import ask
from dragonscale.faces.library.asking import asking

verify = asking(
    "verify",
    VerifyQuestion,
    ask,
    """
    Does the real compiler agree with a plan? Memory, FLOPs and every collective, planned and compiled.

    Needs the compiler (`pip install 'dragonscale[gpu-compiler]'` or `[tpu]`), but no accelerator. Returns a
    `Verification`: `.verdict`, `.peak`, `.flops`, `.axes`; `.to_frame()` has a row for each number compared.
    """,
)
