"""How many verify steps a sequence takes when drafts are accepted token by token with given probabilities.

A step that verifies `draft` proposals yields one token for sure and another for each proposal up to the first that is
rejected (`dragonscale.serving.acceptance.tokens_per_loop` has the mean). The draws depend on the seed and the request
alone, not on when or where it runs.
"""

import math
import random
from bisect import bisect_right

from dragonscale.serving.acceptance import Acceptance, reached


def verify_steps(tokens: int, draft: int, acceptance: Acceptance, seed: int, number: int) -> tuple[int, int]:
    """Steps until at least `tokens` tokens are out, and the tokens those steps yield (the last may overshoot)."""
    if isinstance(acceptance, tuple) and len(acceptance) == 1:
        acceptance = acceptance[0]
    if draft == 0 or acceptance == 0:
        return tokens, tokens
    if acceptance == 1:
        steps = -(-tokens // (draft + 1))
        return steps, steps * (draft + 1)
    draw = random.Random((seed << 40) ^ (number << 8) ^ (tokens & 0xFF)).random
    steps = done = 0
    if isinstance(acceptance, tuple):
        wrong = [1.0 - float(part) for part in reached(acceptance, draft)]
        while done < tokens:
            done += 1 + bisect_right(wrong, draw())
            steps += 1
        return steps, done
    scale = 1 / math.log(acceptance)
    while done < tokens:
        done += 1 + min(draft, int(math.log(1.0 - draw()) * scale))
        steps += 1
    return steps, done
