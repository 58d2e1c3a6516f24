"""One block of a Transformer: a mixer and a feed-forward half between norms, on a residual stream.

The stream is `R[b,t,d]`. With hyper-connections it is several streams `R[b,t,hs,d]`: each half reads a learnt mix of
them and its result is spread back over all.
"""

from dataclasses import dataclass
from typing import Literal

from dragonscale.models.component import Component, written
from dragonscale.models.program import Op, parsed, renamed, suffixed


@dataclass(frozen=True)
class Both(Component):
    """Two mixers side by side on the same input, their outputs added (Falcon-H1)."""

    first: Component
    second: Component

    @property
    def dims(self) -> dict[str, int]:
        return self.first.dims | self.second.dims

    def ops(self) -> tuple[Op, ...]:
        """Both programs; all arrays of the second but the block's input get a 2 after their names."""
        added = parsed(["residual: A[b,t,d] = add(A[b,t,d], A2[b,t,d])"])
        return (*self.first.ops(), *suffixed(self.second.ops(), "2"), *added)


Norms = Literal["pre", "post", "sandwich", "pre-shared"]


@dataclass(frozen=True)
class Layer:
    """One block. `norms` says where they stand: before each half (`pre`), after it (`post`), both (`sandwich`), or one
    norm that both halves of a parallel block share (`pre-shared`). `norm_weight` of False makes them plain.

    `streams` is the number of residual streams of hyper-connections, 1 without them. `extra` adds lines at the end.
    """

    mixer: Component | None
    ffn: Component | None
    norms: Norms = "pre"
    norm_bias: bool = False
    norm_weight: bool = True
    parallel: bool = False
    streams: int = 1
    extra: Component | None = None

    def ops(self) -> tuple[Op, ...]:
        """The program of the block, from the residual stream `R` back to it."""
        ops: list[Op] = []
        before, after = self.norms in ("pre", "sandwich"), self.norms in ("post", "sandwich")
        source = "R" if self.streams == 1 else "X"
        if self.norms == "pre-shared":
            ops += parsed([self._norm("X", "R", "block")])
        for part, output, name in ((self.mixer, "A", "mixer"), (self.ffn, "M", "ffn")):
            if part is None:
                continue
            if self.streams > 1:  # hyper-connections mix the residual streams into one
                ops += parsed(written("hyper", {"name": name}.get))
            if before:
                ops += parsed([self._norm("X", source, name)])
            if self.norms == "post":  # without a norm before it, a part reads the residual stream itself
                ops += renamed(part.ops(), {"X": "R"})
            else:
                ops += part.ops()
            if after:
                ops += parsed([self._norm(output, output, f"{name}_after")])
            if not self.parallel:
                ops += parsed([self._return(output)])
        if self.parallel:
            ops += parsed(["residual: R[b,t,d] = add(R[b,t,d], A[b,t,d], M[b,t,d])"])
        if self.extra:
            ops += self.extra.ops()
        return tuple(ops)

    def _norm(self, output: str, source: str, name: str) -> str:
        bias = f", w_{name}_bias[d]" if self.norm_bias else ""
        weights = f"; w_{name}[d]{bias}" if self.norm_weight else ""
        return f"norm: {output}[b,t,d] = norm({source}[b,t,d]{weights})"

    def _return(self, output: str) -> str:
        if self.streams > 1:
            return f"hyper: R[b,t,hs,d] = mix(R[b,t,hs,d], {output}[b,t,d], Hp[b,t,hp])"
        return f"residual: R[b,t,d] = add(R[b,t,d], {output}[b,t,d])"

    @property
    def dims(self) -> dict[str, int]:
        dims: dict[str, int] = {}
        for part in (self.mixer, self.ffn, self.extra):
            if part is not None:
                dims |= part.dims
        if self.streams > 1:
            # hp: weights of reading, of writing and of mixing the streams; h3: a scale for each of the three
            dims |= {"hs": self.streams, "hp": self.streams * (self.streams + 2), "h3": 3}
        return dims
