"""Many verifications together: medians, worst cases, and what counts as explained."""

import msgspec
import pytest

from dragonscale.evidence.verify.records import AxisLine, Request, VerifyLine, VerifyReport, flat, score


def report(peak: float, sent: float, verdict: str = "agrees", planned: float = 1e9, fits: bool = True) -> VerifyReport:
    """A program whose peak was planned at 10 GB and whose bytes over `fsdp` at `planned`."""
    axis = VerifyLine("fsdp", "bytes", planned, sent, 0.03, verdict)
    return VerifyReport(
        Request("train", "llama3-8b", "h100:64", "fsdp=64", 64, 8192),
        {"jax": "1", "jaxlib": "1"},
        20.0,
        1e9,
        True,
        verdict,
        peak=VerifyLine("peak", "bytes", 10e9, peak, 0.07, "agrees"),
        axes=(AxisLine(("fsdp",), axis, {}),),
        fits_compiled=fits,
    )


def test_errors_have_signs_and_scores_do_not() -> None:
    rows = [flat(report(9e9, 1.01e9)), flat(report(10.2e9, 0.98e9)), flat(report(10.1e9, 1e9))]
    assert rows[0].peak_error == pytest.approx(-0.1)
    assert rows[0].chips == 64
    found = {one.name: one for one in score(rows).spreads}
    assert found["peak memory"].median == pytest.approx(0.02)
    assert found["peak memory"].worst == pytest.approx(0.1)
    assert found["bytes sent"].worst == pytest.approx(0.02)
    assert found["FLOPs"].rows == 0
    assert found["FLOPs"].median is None


def test_bytes_that_were_never_planned_are_not_fine() -> None:
    """They have no ratio, so only the verdict of their axes tells."""
    row = flat(report(10e9, 5e8, "differs", planned=0.0))
    assert row.wire == "fsdp new"
    assert row.wire_error is None
    assert score([row]).wire_ok == 0
    assert score([row, flat(report(10e9, 1.5e9, "explained"))]).wire_ok == 0.5


def test_a_plan_that_was_accepted_and_does_not_fit_is_counted() -> None:
    full = msgspec.structs.replace(report(10e9, 1e9, fits=False), compiled=False)
    foreseen = msgspec.structs.replace(full, fits_planned=False)
    found = score([flat(full), flat(foreseen), flat(report(10e9, 1e9))])
    assert found.wrongly_accepted == 1
    assert found.verdicts == {"does not fit": 2, "agrees": 1}
    assert (found.rows, found.compiled) == (3, 1)
