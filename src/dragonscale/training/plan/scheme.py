"""Plans by the names of parallelisms alone: `fsdp+tp` spread over a slice."""

from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.hardware import Slice
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import parse_plan

# Names of parallelisms, by the mesh axis that each splits.
SCHEMES = {"dp": "data", "ddp": "data", "fsdp": "fsdp", "tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipe"}
# Degrees that each further scheme may get, of which the largest is taken that leaves the first scheme two.
INNER_DEGREES = (8, 4, 2)


def is_scheme(text: str) -> bool:
    """Whether a text names parallelisms without their degrees: `fsdp+tp`, not `fsdp=8,tensor=4`, `tp8` or a file."""
    return not ("=" in text or text.strip().endswith(".toml") or any(letter.isdigit() for letter in text))


def read_scheme(text: str, piece: Slice) -> Plan:
    """A plan, or the name of a scheme (`fsdp`, `dp+tp`, `fsdp+ep+tp`) spread over a slice: the first takes what the
    others, of at most eight chips each, leave.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> print(read_scheme("fsdp+tp", parse_slice("h100:512")), "|", read_scheme("dp", parse_slice("v5p:4x4x4")))
    fsdp=64,tensor=8 | data=64,fsdp=1,zero=1
    >>> print(read_scheme("pp4 cp2 ep8 z1", parse_slice("h100:64")))
    context=2,expert=8,pipe=4,zero=1
    >>> print(read_scheme("dp+fsdp+tp", parse_slice("v5e:4x4")))
    data=4,fsdp=2,tensor=2
    """
    if "[" in text:
        raise InputError(
            f"{shorten(text)} is a chain of sharded einsums; `dscale shard` says what travels and how long it takes."
        )
    if not is_scheme(text):
        return parse_plan(text)
    names = text.strip().lower().split("+")
    for name in names:
        if name not in SCHEMES:
            raise unknown("parallelism called", name, SCHEMES)
    if len({SCHEMES[name] for name in names}) < len(names):
        raise InputError(f"{shorten(text)} names one parallelism twice; each takes part once.")
    others = len(names) - 1
    inner = 0
    for degree in INNER_DEGREES:
        if piece.chips % degree**others == 0 and piece.chips >= 2 * degree**others:
            inner = degree
            break
    if not inner and others:
        raise InputError(f"{shorten(text)} needs at least {2 ** len(names)} chips and {piece} has {piece.chips}.")
    degrees: dict[str, Any] = {SCHEMES[name]: inner for name in names[1:]}
    degrees[SCHEMES[names[0]]] = piece.chips // inner**others
    return Plan(**degrees, zero=3 if "fsdp" in names else 1)
