"""A finished run for people: what it reached, beside what was planned."""

from typing import Any

from dragonscale.cli.show import amount, table


def text_of(result: Any) -> str:
    """The run and the plan side by side, and what the difference means."""
    head = f"{result.model}: {result.parameters:,} parameters, plan {result.plan}, on {result.devices} x {result.device_kind}"
    planned = result.planned
    state = amount(planned.state_bytes, "bytes") if planned else None
    rows = [
        ["steps", f"{result.first_step:,} to {result.last_step:,} of {result.steps:,}", None],
        ["loss", None if result.loss is None else f"{result.loss:.4f}", None],
        ["step", amount(result.step_s, "s"), amount(planned.step_s, "s") if planned else None],
        ["tokens/s", None if result.tokens_per_s is None else f"{result.tokens_per_s:,.0f}", None],
        ["MFU", _share(result.mfu), _share(planned.mfu) if planned else None],
        ["state on a device", amount(result.state_bytes_per_device, "bytes"), state],
    ]
    title = f"planned on {planned.slice}" if planned else "planned"
    lines = [head, "", table(["", "run", title], rows, right=[1, 2]), ""]
    return "\n".join([*lines, *_remarks(result)])


def _share(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.3g}%"


def _remarks(result: Any) -> list[str]:
    said: list[str] = []
    planned = result.planned
    if planned is not None:
        said += [f"The planner would not take this plan on {planned.slice}: {one}." for one in planned.problems]
    if planned is None:
        said.append("Name a slice (--on h100:8) to see the planned step beside the run.")
    elif result.mfu is None:
        kind = result.device_kind
        said.append(f"These devices ({kind}) are not the chips of the plan: the step times cannot be compared.")
    elif result.step_s is not None:
        said.append(f"A step took {result.step_s / planned.step_s:.2f} times what was planned.")
    if result.stopped != "finished":
        said.append(f"Stopped by {result.stopped} after step {result.last_step}; run it again to go on.")
    return said
