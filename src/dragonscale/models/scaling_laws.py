"""Scaling laws: the tokens, loss and batch size that suit a model of N parameters, as published fits have them."""

CHINCHILLA_TOKENS_PER_PARAMETER = 20.0
"""Where a fixed compute budget is spent best: Hoffmann et al. 2022, Training Compute-Optimal Large Language Models
(arXiv:2203.15556), table 3."""


def chinchilla_tokens(parameters: float) -> float:
    """The compute-optimal number of tokens for a model.

    >>> chinchilla_tokens(70e9)
    1400000000000.0
    """
    return CHINCHILLA_TOKENS_PER_PARAMETER * parameters


def expected_loss(parameters: float, tokens: float) -> float:
    """The loss, in nats per token, that the Chinchilla fit E + A/N^alpha + B/D^beta expects."""
    # Hoffmann et al. 2022, equation 10; E is the entropy of text, which no model goes below
    return 1.69 + 406.4 / parameters**0.34 + 410.7 / tokens**0.28


def critical_batch(parameters: float, tokens: float) -> float:
    """Tokens of a batch beyond which more of them buy little: twice the batch no longer halves the steps needed.

    >>> round(critical_batch(70e9, 15e12) / 1e6)
    11
    """
    # B*/L^(1/alpha_B) at loss L: Kaplan et al. 2020, Scaling Laws for Neural Language Models (arXiv:2001.08361),
    # section 5.1. Fitted on small models: an order of magnitude.
    return 2.1e8 / expected_loss(parameters, tokens) ** (1 / 0.21)
