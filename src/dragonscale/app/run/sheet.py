"""`dscale run train` laid out: what the run reached, beside what was planned, and what the difference means."""

from typing import Any

from dragonscale.sheets.sheet import Column, Prose, Sheet, Title, amount, table


def run_sheet(result: Any) -> Sheet:
    """The run and the plan side by side."""
    planned = result.planned
    rows = [
        ("steps", f"{result.first_step:,} to {result.last_step:,} of {result.steps:,}", None),
        ("loss", None if result.loss is None else f"{result.loss:.4f}", None),
        ("step", amount(result.step_s, "s"), amount(planned.step_s, "s") if planned else None),
        ("tokens/s", None if result.tokens_per_s is None else f"{result.tokens_per_s:,.0f}", None),
        ("MFU", _share(result.mfu), _share(planned.mfu) if planned else None),
        (
            "state on a device",
            amount(result.state_bytes_per_device, "bytes"),
            amount(planned.state_bytes, "bytes") if planned else None,
        ),
    ]
    head = f"{result.model}: {result.parameters:,} parameters"
    aside = f"plan {result.plan}, on {result.devices} x {result.device_kind}"
    columns = [
        "",
        Column("run", right=True),
        Column(f"planned on {planned.slice}" if planned else "planned", right=True),
    ]
    remarks = Prose("\n".join(_remarks(result)))
    return Sheet((Title(head, aside), remarks, table(columns, rows)))


def _share(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.3g}%"


def _remarks(result: Any) -> list[str]:
    said: list[str] = []
    planned = result.planned
    if planned is not None:
        said += [f"The planner would not take this plan on {planned.slice}: {one}." for one in planned.problems]
        said += planned.remarks
    if planned is None:
        named = getattr(result.asked, "on", "")  # then a note says why nothing is planned
        said += [] if named else ["Name a slice (--on h100:8) to see the planned step beside the run."]
    elif result.mfu is None:
        kind = result.device_kind
        said.append(f"These devices ({kind}) are not the chips of the plan: the step times cannot be compared.")
    elif result.step_s is not None:
        said.append(f"A step took {result.step_s / planned.step_s:.2f} times what was planned.")
    if result.capacity:
        said.append(
            f"Each expert had room for {result.capacity:g} of its even share of tokens; the tokens beyond it were "
            "dropped (--capacity)."
        )
    if result.stopped != "finished":
        said.append(f"Stopped by {result.stopped} after step {result.last_step}; run it again to go on.")
    return said
