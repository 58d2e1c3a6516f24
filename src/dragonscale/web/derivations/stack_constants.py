"""The rule and the constants by which a stack turns an expected time into what the step waits for, as a table of a
derivation."""

from dragonscale.training.evaluation import Job
from dragonscale.web.derivations.pieces import Piece, table

_PART = (
    "exposed = t*(1 - (1 - contention)*o): t is the expected time, o the first constant; less hides where the "
    "kernels are too short."
)
RULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "fsdp collectives": (
        "exposed = max(t - o*busy, 0) + contention*min(t, o*busy), for each pass of a layer: t is the expected "
        "time, o the first "
        "constant, busy the kernels of the pass and the activation moves that show in it.",
        ("overlap.weight", "overlap.contention"),
    ),
    "gradient reduction": (
        "exposed = e + contention*(total - e), e = max(g - o*backward*passes, 0) + max(u - o*forward*passes, 0): "
        "g is the time of the "
        "gradients, u that of the updated weights, total = g + u, o the first constant, backward and forward a "
        "rank's layers in one "
        "microbatch; passes = min(pipe, microbatches) with more than one chunk to a rank, otherwise 1.",
        ("overlap.gradient", "overlap.contention"),
    ),
    "tensor collectives": (_PART, ("overlap.tensor", "overlap.contention")),
    "expert all-to-all": (_PART, ("overlap.expert", "overlap.expert_two_way", "overlap.contention")),
    "stragglers": ("step without them * straggle * log2(machines).", ("host.straggle",)),
    "host": (
        "exposed = max(kernel_s*(kernels + launches*experts) - busy - copies, 0), for each pass of a layer: "
        "kernels are those that the "
        "host issues, with one for each kind of activation move, experts those of its grouped matmuls, busy the "
        "pass's kernels and "
        "the activation moves that show, copies its copies of weights and gradients.",
        ("host.kernel_s", "experts.launches"),
    ),
    "weight and gradient copies": (
        (
            "bytes moved for each weight (unpacked under ZeRO-3, added up) and kept activation, copied through HBM, "
            "and layer_s a layer."
        ),
        ("state.weight_copies", "state.accumulate", "state.accumulate_more", "memory.kept_moves", "host.layer_s"),
    ),
}
"""Terms, how the planner works them out (`training.passes`, `training.step`), and the constants in that."""


def constants_of(job: Job, term: str) -> list[Piece]:
    """The table of a term; none where no constant of the stack is in it."""
    if term not in RULES:
        return []
    rule, names = RULES[term]
    stack = job.stack
    rows = []
    for name in names:
        group, _, key = name.partition(".")
        rows.append([name, f"{getattr(getattr(stack, group), key):.4g}", f"stack {stack.name}: {stack.why}"])
    return [table("The stack's rule and constants", ("constant", "value", "from"), rows, rule)]
