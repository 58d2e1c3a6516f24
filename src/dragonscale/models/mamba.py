"""State-space mixers as lines of a program: Mamba, Mamba-2 and the short gated convolution of LFM2.

As with linear attention, the recurrence itself is what is counted.
"""

from dataclasses import dataclass

from dragonscale.models.component import Written, projected


@dataclass(frozen=True)
class Mamba2(Written):
    """Mamba-2: `n_heads` states of `head_dim` by `state`; groups of heads share their input and output maps."""

    n_heads: int
    head_dim: int
    state: int
    n_groups: int
    kernel: int = 4
    conv_bias: bool = True
    proj_bias: bool = False
    out_bias: bool = False
    norm: bool = True

    @property
    def dims(self) -> dict[str, int]:
        dims = {"mn": self.n_heads, "mh": self.head_dim, "ms": self.state, "mk": self.n_groups}
        return dims | {"w": self.kernel, "wm": self.kernel - 1}

    def lines(self) -> list[str]:
        """The program of this mixer: a gate, an input, its two maps and a step size per head, then the scan."""
        lines: list[str] = []
        for name, dims in (("E", "mn,mh"), ("V", "mn,mh"), ("B", "mk,ms"), ("C", "mk,ms"), ("F", "mn")):
            tag = name.lower()
            bias = f"w_{tag}[{dims}]" if self.proj_bias else ""
            lines += projected("mamba", f"{name}[b,t,{dims}]", "X[b,t,d]", f"W{tag}[d,{dims}]", bias)
        lines += ["mamba: cache(V[b,mn,mh,wm], B[b,mk,ms,wm], C[b,mk,ms,wm], S:fp32[b,mn,mh,ms])"]
        for name, dims in (("V", "mn,mh"), ("B", "mk,ms"), ("C", "mk,ms")):
            weights = f"w_conv{name.lower()}[{dims},w]"
            weights += f", w_conv{name.lower()}_bias[{dims}]" if self.conv_bias else ""
            lines += [f"mamba: {name}[b,t,{dims}] = conv({name}[b,t,{dims}]; {weights})"]
        lines += [
            "mamba: F[b,t,mn] = bias(F[b,t,mn]; w_dt[mn])",
            "mamba: O[b,t,mn,mh] = scan(V[b,t,mn,mh], B[b,t,mk,ms], C[b,t,mk,ms], F[b,t,mn], S:fp32[b,mn,mh,ms]; w_log[mn], w_skip[mn])",
            "mamba: O[b,t,mn,mh] = act(O[b,t,mn,mh], E[b,t,mn,mh])",
        ]
        lines += ["mamba: O[b,t,mn,mh] = norm(O[b,t,mn,mh]; w_onorm[mn,mh])"] if self.norm else []
        out_bias = "w_o[d]" if self.out_bias else ""
        return lines + projected("mamba", "A[b,t,d]", "O[b,t,mn,mh]", "Wo[mn,mh,d]", out_bias)


@dataclass(frozen=True)
class Mamba(Written):
    """The first Mamba: `inner` channels, each with a state of its own; `norms` are Jamba's, on step, input and output maps."""

    inner: int
    state: int
    rank: int
    kernel: int = 4
    conv_bias: bool = True
    proj_bias: bool = False
    norms: bool = False

    @property
    def dims(self) -> dict[str, int]:
        dims = {"f1": self.inner, "ms": self.state, "r": self.rank}
        return dims | {"w": self.kernel, "wm": self.kernel - 1}

    def lines(self) -> list[str]:
        conv_bias = ", w_conv_bias[f1]" if self.conv_bias else ""
        v_bias, e_bias, o_bias = ("w_v[f1]", "w_e[f1]", "w_o[d]") if self.proj_bias else ("", "", "")
        lines = projected("mamba", "V[b,t,f1]", "X[b,t,d]", "Wv[d,f1]", v_bias)
        lines += projected("mamba", "E[b,t,f1]", "X[b,t,d]", "We[d,f1]", e_bias)
        lines += [
            "mamba: cache(V[b,f1,wm], S:fp32[b,f1,ms])",
            f"mamba: V[b,t,f1] = conv(V[b,t,f1]; w_conv[f1,w]{conv_bias})",
            "mamba: F[b,t,r] = V[b,t,f1] · Wf[f1,r]",
            "mamba: B[b,t,ms] = V[b,t,f1] · Wb[f1,ms]",
            "mamba: C[b,t,ms] = V[b,t,f1] · Wc[f1,ms]",
        ]
        if self.norms:
            lines += [
                "mamba: F[b,t,r] = norm(F[b,t,r]; w_fnorm[r])",
                "mamba: B[b,t,ms] = norm(B[b,t,ms]; w_bnorm[ms])",
                "mamba: C[b,t,ms] = norm(C[b,t,ms]; w_cnorm[ms])",
            ]
        lines += [
            "mamba: Dt[b,t,f1] = F[b,t,r] · Wdt[r,f1]",
            "mamba: Dt[b,t,f1] = bias(Dt[b,t,f1]; w_dt[f1])",
            "mamba: O[b,t,f1] = scan(V[b,t,f1], B[b,t,ms], C[b,t,ms], Dt[b,t,f1], S:fp32[b,f1,ms]; w_log[f1,ms], w_skip[f1])",
            "mamba: O[b,t,f1] = act(O[b,t,f1], E[b,t,f1])",
        ]
        return lines + projected("mamba", "A[b,t,d]", "O[b,t,f1]", "Wo[f1,d]", o_bias)


@dataclass(frozen=True)
class ShortConv(Written):
    """LFM2's mixer: a short convolution over a gated input, gated again on its way out."""

    width: int
    kernel: int
    bias: bool = False

    @property
    def dims(self) -> dict[str, int]:
        return {"d1": self.width, "w": self.kernel, "wm": self.kernel - 1}

    def lines(self) -> list[str]:
        lines: list[str] = []
        for name in ("B", "C", "V"):
            tag = name.lower()
            bias = f"w_{tag}[d1]" if self.bias else ""
            lines += projected("conv", f"{name}[b,t,d1]", "X[b,t,d]", f"W{tag}[d,d1]", bias)
        return [
            *lines,
            "conv: V[b,t,d1] = act(V[b,t,d1], B[b,t,d1])",
            "conv: cache(V[b,d1,wm])",
            f"conv: V[b,t,d1] = conv(V[b,t,d1]; w_conv[d1,w]{', w_conv_bias[d1]' if self.bias else ''})",
            "conv: O[b,t,d1] = act(V[b,t,d1], C[b,t,d1])",
            *projected("conv", "A[b,t,d]", "O[b,t,d1]", "Wo[d1,d]", "w_o[d]" if self.bias else ""),
        ]
