"""Commands that check an answer."""


def calc(expression: str) -> str:
    """The calculator on an expression.

    >>> calc("64 * 400 Gb/s")
    'dscale calc "64 * 400 Gb/s"'
    """
    return f'dscale calc "{expression}"'
