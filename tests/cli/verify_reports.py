"""Reports of verifications as the commands show them, without a compiler behind: one that agrees, one with every kind
of difference, one that does not fit and one that did not compile."""

from collections.abc import Callable

import msgspec
import pytest

from dragonscale.evidence.verify import comparing
from dragonscale.evidence.verify.records import AxisLine, OverlapLine, Request, Unmatched, VerifyLine, VerifyReport

ASKED = Request("train", "llama3-8b", "h100:8", "fsdp=4,tensor=2,remat=block", 16, 8192)
VERSIONS = {"jax": "0.10.2", "jaxlib": "0.10.2", "jax-cuda12-pjrt": "0.10.2"}

AGREEING = VerifyReport(
    request=ASKED,
    versions=VERSIONS,
    seconds=28.4,
    resident_bytes=1.21e9,
    compiled=True,
    verdict="agrees",
    arguments=VerifyLine("arguments", "bytes", 12.05e9, 12.05e9, 0.002, "agrees"),
    peak=VerifyLine("peak", "bytes", 30.1e9, 30.9e9, 0.07, "agrees"),
    memory={"state": 12.05e9, "checkpoints": 8.6e9, "working set": 9.45e9},
    limit_bytes=80e9,
    flops=VerifyLine("flops", "FLOP", 8.811e14, 8.812e14, 0.01, "agrees"),
    axes=(
        AxisLine(
            ("fsdp",),
            VerifyLine("fsdp", "bytes", 18.06e9, 18.11e9, 0.03, "agrees"),
            {"all_gather": (12.04e9, 12.04e9), "reduce_scatter": (6.02e9, 6.07e9)},
        ),
        AxisLine(
            ("tensor",),
            VerifyLine("tensor", "bytes", 41.2e9, 41.2e9, 0.03, "agrees"),
            {"all_gather": (20.6e9, 20.6e9), "reduce_scatter": (20.6e9, 20.6e9)},
        ),
    ),
)

DIFFERING = msgspec.structs.replace(
    AGREEING,
    request=msgspec.structs.replace(ASKED, mode="full", slice="v5p:2x2x2"),
    versions={"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1"},
    verdict="differs",
    peak=VerifyLine("peak", "bytes", 30.1e9, 33.9e9, 0.07, "differs"),
    axes=(
        AxisLine(
            ("fsdp",),
            VerifyLine(
                "fsdp",
                "bytes",
                18.06e9,
                20.4e9,
                0.03,
                "explained",
                "XLA keeps an AllReduce where a ReduceScatter was planned",
            ),
            {"all_gather": (12.04e9, 12.04e9), "reduce_scatter": (6.02e9, 3.1e9), "all_reduce": (0.0, 5.26e9)},
        ),
        AxisLine(
            ("fsdp", "tensor"), VerifyLine("both", "bytes", 0.0, 1.2e6, 0.03, "differs"), {"all_reduce": (0.0, 1.2e6)}
        ),
    ),
    only_planned=(Unmatched("reduce_scatter", ("fsdp",), 2.9e9, 32, "gradient", why="kept as an AllReduce"),),
    only_compiled=(
        Unmatched(
            "all_reduce",
            ("fsdp", "tensor"),
            1.2e6,
            64,
            "",
            "jit(step)/while/body/dot_general<br>",
            "dragonscale/runtime/lines.py:120",
        ),
    ),
    overlap=(
        OverlapLine("all_gather", ("fsdp",), "weight", 12.04e9, "hidden", "hidden", True),
        OverlapLine("all_gather", ("tensor",), "activation", 20.6e9, "hidden", "exposed", False),
    ),
    padding_bytes=3.2e7,
    cycles_s=1.42,
    slowest=(
        ("jit(step)/while/body/attention/dot_general at dragonscale/runtime/attention.py:88", 0.51),
        ("fusion.2", 0.2),
    ),
    algorithms={"ring over 2 torus axes": 64},
)

FULL = VerifyReport(
    request=msgspec.structs.replace(ASKED, slice="v5e:2x4"),
    versions={"jax": "0.10.2", "libtpu": "0.0.42.1"},
    seconds=12.0,
    resident_bytes=0.9e9,
    compiled=False,
    verdict="differs",
    limit_bytes=16e9,
    fits_planned=False,
    fits_compiled=False,
    trouble="XLA asked for 18.22 GiB of the 15.75 GiB that a chip has, 2.47 GiB too much.",
    largest=(("copy.27 = copy(param.4)", 2.68e9, "bf16[80,16,8192,1,128]"), ("fusion.3", 1.1e9, "")),
    advice="fsdp=8,remat=block would fit in 11.2GB.",
)

FAILED = msgspec.structs.replace(
    FULL,
    fits_planned=True,
    fits_compiled=True,
    largest=(),
    advice="",
    trouble="XLA stopped on a failed check of its own.",
)


def instead_of_compiling(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Request], VerifyReport]) -> list[Request]:
    """Answer requests without a compiler; returns the list of what was asked."""
    asked: list[Request] = []

    def verify(
        request: Request, timeout: float, memory: float, cached: bool, stack: str = "dragonscale"
    ) -> VerifyReport:
        assert timeout > 0
        assert memory > 0
        assert isinstance(cached, bool)
        assert stack
        asked.append(request)
        return answer(request)

    monkeypatch.setattr(comparing, "verify", verify)
    return asked
