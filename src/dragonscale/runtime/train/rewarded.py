"""What a step learns of answers that were rewarded: the clipped objective of PPO, as GRPO and DAPO take it.

The ratio of a token's probability now to that under the weights that were to be improved is taken up to `clip` from
one, times the answer's advantage; the KL divergence to a reference is the estimator that is never negative
(Schulman 2020, http://joschu.net/blog/kl-approx.html), as in GRPO (arXiv:2402.03300).
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rewarded:
    """Answers in place of targets, arrays [passes, b, t] all of them: the next token (negative where it is not of an
    answer), its answer's advantage, and its log-probabilities under the weights before the step and the reference's.
    """

    targets: Any
    advantages: Any
    old: Any
    reference: Any
    clip: float = field(default=0.2, metadata={"static": True})
    kl: float = field(default=0.0, metadata={"static": True})

    def objective(self, found: jax.Array) -> jax.Array:
        """What each token adds to the loss, of its cross-entropy now; 0 where it is not of an answer."""
        ratio = jnp.exp(-found - self.old)
        kept = jnp.clip(ratio, 1 - self.clip, 1 + self.clip)
        gained = jnp.minimum(ratio * self.advantages, kept * self.advantages)
        return jnp.where(self.targets < 0, 0.0, self.kl * divergence(-found, self.reference) - gained)


def divergence(now: Any, reference: Any) -> Any:
    """The KL divergence from a reference, by the log-probabilities of a token that was drawn.

    >>> float(divergence(jnp.float32(-1.0), jnp.float32(-1.0)))
    0.0
    """
    apart = reference - now
    return jnp.exp(apart) - apart - 1


def goals(targets: Any) -> Any:
    """The next tokens, of rewarded answers or plain."""
    return targets.targets if isinstance(targets, Rewarded) else targets
