"""A profile as a trace for Perfetto, with what we know written beside what was measured.

Three processes: the step as it was recorded, each op with its kind, section, phase, FLOPs and part of its roofline; our
reading of it (sections, phases, exposed communication, idle gaps with causes); and, where a plan was given, the step as
it is predicted, from the same beginning. One step is shown, and at most some 20,000 events.
"""

import gzip
import json
from typing import Any

from dragonscale.commands.profile.profile_records import ProfileReport
from dragonscale.commands.profile.shown import ShownSlice, ShownStep, shown_step
from dragonscale.errors import InputError
from dragonscale.evidence.profiles.analysis import Analysis
from dragonscale.evidence.profiles.beside import ExpectedStep, expected_step
from dragonscale.files import write_file
from dragonscale.plan.timeline import MICRO, TimelinePass, timeline
from dragonscale.training.cost.step_timeline import step_timeline

RECORDED, READ, PREDICTED = 1, 2, 3


def save_trace(report: ProfileReport, path: str) -> str:
    """Write the trace, gzipped where the name says so; what it shows."""
    analysis = report.analysis
    step = shown_step(analysis)
    if step is None:
        raise InputError("A profile in which nothing was timed has no timeline.")
    trace = profile_trace(analysis, step, planned_of(report))
    content = json.dumps(trace, separators=(",", ":")).encode()
    write_file(path, gzip.compress(content, mtime=0) if path.endswith(".gz") else content, "The trace")
    return f", step {step.number} of {report.steps.count}; open it at https://ui.perfetto.dev"


def planned_of(report: ProfileReport) -> ExpectedStep | None:
    """The plan's step once more; None where no plan was given."""
    asked: Any = getattr(report, "asked", None)
    if getattr(asked, "request", None) is None:
        return None
    return expected_step(asked.request, asked.stack, asked.engine)


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


def _process(number: int, title: str, slices: tuple[ShownSlice, ...], analysis: Analysis) -> list[dict[str, Any]]:
    """Named tracks with their slices; outer slices come before the inner ones that begin with them."""
    tracks = {name: place + 1 for place, name in enumerate(dict.fromkeys(one.track for one in slices))}
    facts = {op: op_facts(analysis, op) for op in {one.op for one in slices} if op >= 0}
    names = [_meta("process_name", number, 0, title), _meta("process_sort_index", number, 0, number, "sort_index")]
    names += [_meta("thread_name", number, place, name) for name, place in tracks.items()]
    names += [_meta("thread_sort_index", number, place, place, "sort_index") for place in tracks.values()]
    made = [
        {
            "name": one.name or analysis.recording.ops[one.op].name,
            "ph": "X",
            "pid": number,
            "tid": tracks[one.track],
            "ts": one.start_s * MICRO,
            "dur": one.seconds * MICRO,
            "args": facts.get(one.op, {}),
        }
        for one in slices
    ]
    return [*names, *sorted(made, key=lambda event: (event["ts"], -event["dur"]))]


def op_facts(analysis: Analysis, op: int) -> dict[str, Any]:
    """What is known of an op, without what is not."""
    role, text = analysis.roles[op], analysis.recording.ops[op]
    bound, by = analysis.roof.bound(role, op)
    done = analysis.roof.done(op)
    runs, seconds = float(analysis.totals.times[op]), float(analysis.totals.seconds[op])
    each = seconds / runs if runs else 0.0
    found = {
        "kind": role.kind,
        "section": role.section,
        "phase": role.phase,
        "tensor": role.what,
        "flops": role.flops and done * role.flops,
        "hbm_bytes": role.hbm_bytes,
        "sent_bytes": role.wire_bytes,
        "dtype": role.dtype,
        "roofline_s": bound,
        "roofline_fraction": round(bound / each, 4) if bound and each else None,
        "bound_by": by,
        "known_by": ", ".join(role.why),
        "scope": text.scope[:400],
        "caller": text.caller[:200],
        "source": text.source[:200],
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def predicted(planned: ExpectedStep) -> list[dict[str, Any]]:
    """The plan's timeline of a step, as `--timeline` of `train` and `serve` writes it, in a process of its own."""
    from dragonscale.training.plan.plan_file import parse_plan

    request = planned.request
    title = f"predicted: {request.model} on {request.slice}, {request.plan} ({planned.software})"
    if request.program == "train":
        plan = parse_plan(request.plan)
        many = max(1.0, request.batch / (plan.replicas * plan.microbatch))
        made = step_timeline(planned.ledger, many, title)
    else:
        made = timeline([TimelinePass(request.program, tuple(planned.lines))], title)
    return [each | {"pid": PREDICTED} for each in made["traceEvents"]]


def _meta(what: str, process: int, track: int, value: Any, key: str = "name") -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": track, "args": {key: value}}
