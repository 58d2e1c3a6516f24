"""A profile as a trace for Perfetto, with what the analysis knows written beside what was measured.

Three processes: the step as it was recorded, each op with its kind, section, phase, FLOPs and fraction of its roofline;
our reading of it (sections, phases, exposed communication, idle gaps with causes); and, where a plan was given, the
step as it is predicted, from the same beginning. One step is shown, and at most some 20,000 events.
"""

from typing import Any

from dragonscale.evidence.profiles.analysis import Analysis
from dragonscale.evidence.profiles.beside import ExpectedStep
from dragonscale.evidence.profiles.shown_step import ShownSlice, ShownStep
from dragonscale.plan.timeline import MICROSECONDS, TimelinePass, timeline
from dragonscale.training.cost.step_timeline import step_timeline
from dragonscale.training.plan.plan_file import parse_plan

# Process ids of the trace; Perfetto shows them in this order.
RECORDED = 1
READ = 2
PREDICTED = 3


def profile_trace(analysis: Analysis, step: ShownStep, planned: ExpectedStep | None) -> dict[str, Any]:
    """The trace of a step, in the format of Chrome's trace viewer."""
    reading = analysis.reading
    title = f"recorded: {reading.device or reading.source}, step {step.number} of {reading.steps.count}"
    events = [*_process(RECORDED, title, step.slices, analysis), *_process(READ, "read by dscale", step.own, analysis)]
    if planned is not None:
        events += predicted(planned)
    more = f"; {step.left_out:,} shorter events are left out" if step.left_out else ""
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "shown": f"step {step.number}, {step.seconds:.6g} s{more}",
            "source": reading.source,
            "software": reading.software,
        },
        "traceEvents": events,
    }


def _process(process: int, title: str, slices: tuple[ShownSlice, ...], analysis: Analysis) -> list[dict[str, Any]]:
    """The events of a process: its tracks by name, then their slices, an outer one before those inside it."""
    events = [_meta("process_name", process, 0, title), _meta("process_sort_index", process, 0, process, "sort_index")]
    tracks = {name: rank for rank, name in enumerate(dict.fromkeys(shown.track for shown in slices), 1)}
    events += [_meta("thread_name", process, rank, name) for name, rank in tracks.items()]
    events += [_meta("thread_sort_index", process, rank, rank, "sort_index") for rank in tracks.values()]
    facts = {op: op_facts(analysis, op) for op in {shown.op for shown in slices} if op >= 0}
    drawn = [
        {
            "name": shown.name or analysis.recording.ops[shown.op].name,
            "ph": "X",  # a complete event, with its duration
            "pid": process,
            "tid": tracks[shown.track],
            "ts": shown.start_s * MICROSECONDS,
            "dur": shown.seconds * MICROSECONDS,
            "args": facts.get(shown.op, {}),
        }
        for shown in slices
    ]
    drawn.sort(key=lambda event: (event["ts"], -event["dur"]))
    return [*events, *drawn]


def op_facts(analysis: Analysis, op: int) -> dict[str, Any]:
    """What is known of an op, without what is not."""
    role, text = analysis.roles[op], analysis.recording.ops[op]
    bound_s, bound_by = analysis.roof.bound(role, op)
    computed = analysis.roof.done(op)  # the part of its FLOPs that is computed: half of causal attention
    runs, seconds = float(analysis.totals.times[op]), float(analysis.totals.seconds[op])
    mean_s = seconds / runs if runs else 0.0
    facts = {
        "kind": role.kind,
        "section": role.section,
        "phase": role.phase,
        "tensor": role.what,
        "flops": role.flops and computed * role.flops,
        "hbm_bytes": role.hbm_bytes,
        "sent_bytes": role.wire_bytes,
        "dtype": role.dtype,
        "roofline_s": bound_s,
        "roofline_fraction": round(bound_s / mean_s, 4) if bound_s and mean_s else None,
        "bound_by": bound_by,
        "known_by": ", ".join(role.why),
        "scope": text.scope[:400],
        "caller": text.caller[:200],
        "source": text.source[:200],
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def predicted(planned: ExpectedStep) -> list[dict[str, Any]]:
    """The plan's timeline of a step, as `--timeline` of `train` and `serve` writes it, in a process of its own."""
    request = planned.request
    title = f"predicted: {request.model} on {request.slice}, {request.plan} ({planned.software})"
    if request.program == "train":
        plan = parse_plan(request.plan)
        microbatches = max(1.0, request.batch / (plan.replicas * plan.microbatch))
        trace = step_timeline(planned.ledger, microbatches, title)
    else:
        trace = timeline([TimelinePass(request.program, tuple(planned.lines))], title)
    return [event | {"pid": PREDICTED} for event in trace["traceEvents"]]


def _meta(what: str, process: int, track: int, value: Any, key: str = "name") -> dict[str, Any]:
    """A metadata event: the name or the sort order of a process or a track."""
    return {"name": what, "ph": "M", "pid": process, "tid": track, "args": {key: value}}
