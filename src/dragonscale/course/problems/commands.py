"""Commands that check an answer."""


def calc(expression: str, source: str = "") -> str:
    """The calculator on an expression, with the figures of one source where one is named.

    >>> calc("64 * 400 Gb/s"), calc("h100.bf16", "book")
    ('dscale calc "64 * 400 Gb/s"', 'dscale calc "h100.bf16" --source book')
    """
    return f'dscale calc "{expression}"' + (f" --source {source}" if source else "")
