"""HLO's opcodes by what they cost: functions, arithmetic on elements, names for values."""

TRANSCENDENTAL = frozenset(
    (
        "exponential",
        "exponential-minus-one",
        "log",
        "log-plus-one",
        "logistic",
        "power",
        "sqrt",
        "rsqrt",
        "cbrt",
        "tanh",
        "sine",
        "cosine",
        "tan",
        "atan2",
        "erf",
        "rng",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atanh",
        "sinh",
        "cosh",
    )
)
ELEMENTWISE = TRANSCENDENTAL | frozenset(
    (
        "abs",
        "add",
        "and",
        "ceil",
        "clamp",
        "compare",
        "complex",
        "convert",
        "count-leading-zeros",
        "divide",
        "floor",
        "imag",
        "is-finite",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "popcnt",
        "real",
        "reduce-precision",
        "remainder",
        "round-nearest-afz",
        "round-nearest-even",
        "select",
        "shift-left",
        "shift-right-arithmetic",
        "shift-right-logical",
        "sign",
        "stochastic-convert",
        "subtract",
        "xor",
    )
)
NAMES = frozenset(
    (
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "add-dependency",
        "domain",
        "opt-barrier",
        "optimization-barrier",
        "partition-id",
        "replica-id",
        "get-dimension-size",
        "async-update",
    )
)
"""Instructions that compute and move nothing: they name a value, or part of one."""
CONTROL = ("while", "conditional", "call")
"""Instructions that run others."""
