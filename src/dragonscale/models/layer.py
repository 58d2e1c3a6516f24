"""One block of a Transformer: a mixer and a feed-forward half between norms, on a residual stream.

The stream is `R[b,t,d]`. With hyper-connections it is several streams `R[b,t,hs,d]`: each half reads a learnt mix of
them and its result is spread back over all.
"""

import re
from dataclasses import dataclass
from typing import Literal, Protocol


class Component(Protocol):
    """Something that contributes lines and dims to a block: an attention, an MLP, a mixture of experts."""

    @property
    def dims(self) -> dict[str, int]: ...

    def lines(self) -> list[str]: ...


@dataclass(frozen=True)
class Both:
    """Two mixers side by side on the same input, their outputs added (Falcon-H1)."""

    first: Component
    second: Component

    @property
    def dims(self) -> dict[str, int]:
        return self.first.dims | self.second.dims

    def lines(self) -> list[str]:
        """Both programs; the second one's names get a mark of their own."""
        renamed = [_marked(line) for line in self.second.lines()]
        return [*self.first.lines(), *renamed, "residual: A[b,t,d] = add(A[b,t,d], A2[b,t,d])"]


def _marked(line: str) -> str:
    """The line with a 2 after every array's name but the block's input.

    >>> _marked("mamba: A[b,t,d] = bias(X[b,t,d]; w_o[d])")
    'mamba: A2[b,t,d] = bias(X[b,t,d]; w_o2[d])'
    """
    return re.sub(r"(\w+)((?::\w+)?\[)", lambda found: found[0] if found[1] == "X" else f"{found[1]}2{found[2]}", line)


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

    def lines(self) -> list[str]:
        """The program of the block, from the residual stream `R` back to it."""
        lines: list[str] = []
        before, after = self.norms in ("pre", "sandwich"), self.norms in ("post", "sandwich")
        source = "R" if self.streams == 1 else "X"
        if self.norms == "pre-shared":
            lines.append(self._norm("X", "R", "block"))
        for part, output, name in ((self.mixer, "A", "mixer"), (self.ffn, "M", "ffn")):
            if part is None:
                continue
            lines += self._collapse(name) if self.streams > 1 else []
            if before:
                lines.append(self._norm("X", source, name))
            body = part.lines()
            lines += body if self.norms != "post" else [line.replace("X[b,t,d]", "R[b,t,d]") for line in body]
            if after:
                lines.append(self._norm(output, output, f"{name}_after"))
            if not self.parallel:
                lines.append(self._return(output))
        if self.parallel:
            lines.append("residual: R[b,t,d] = add(R[b,t,d], A[b,t,d], M[b,t,d])")
        return lines + (self.extra.lines() if self.extra else [])

    def _norm(self, output: str, source: str, name: str) -> str:
        bias = f", w_{name}_bias[d]" if self.norm_bias else ""
        weights = f"; w_{name}[d]{bias}" if self.norm_weight else ""
        return f"norm: {output}[b,t,d] = norm({source}[b,t,d]{weights})"

    def _collapse(self, name: str) -> list[str]:
        """One stream out of several, and the weights that will spread the result back."""
        return [
            f"hyper: Hp[b,t,hp] = R[b,t,hs,d] · W_{name}_hyper[hp,hs,d]",
            f"hyper: Hp[b,t,hp] = bias(Hp[b,t,hp]; w_{name}_hyper[hp], w_{name}_scale[h3])",
            "hyper: X[b,t,d] = mix(R[b,t,hs,d], Hp[b,t,hp])",
        ]

    def _return(self, output: str) -> str:
        if self.streams > 1:
            return f"hyper: R[b,t,hs,d] = mix(R[b,t,hs,d], {output}[b,t,d], Hp[b,t,hp])"
        return f"residual: R[b,t,d] = add(R[b,t,d], {output}[b,t,d])"

    @property
    def dims(self) -> dict[str, int]:
        dims: dict[str, int] = {}
        for part in (self.mixer, self.ffn, self.extra):
            dims |= part.dims if part else {}
        if self.streams > 1:
            dims |= {"hs": self.streams, "hp": self.streams * (self.streams + 2), "h3": 3}
        return dims
