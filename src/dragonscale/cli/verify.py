"""`dscale verify PLAN`: the plan's real program, compiled by XLA for the real slice, beside what was planned."""

from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Parameter

from dragonscale.cli.flags import Json
from dragonscale.cli.show import emit_json, note, put
from dragonscale.errors import InputError, shorten


def run(
    plan: Annotated[str, Parameter(help="A plan (fsdp=8,remat=block), or a file that train or serve --save wrote.")],
    /,
    *,
    model: Annotated[str, Parameter(help="A preset, a config.json, or a TOML file.")] = "",
    on: Annotated[str, Parameter(name="--on", help="The slice to compile for (v5p:8x16x16, h100:512).")] = "",
    batch: Annotated[
        str, Parameter(help="Training: tokens of a step (4M), or sequences (512seq). Serving: sequences.")
    ] = "",
    seq: Annotated[str, Parameter(help="Tokens of a sequence, of a prompt, or that a cache has room for.")] = "",
    program: Annotated[str, Parameter(help="train, prefill or decode; told by the plan without it.")] = "",
    stack: Annotated[
        str, Parameter(help="The stack the plan was made for: what it does otherwise than our own program is listed.")
    ] = "",
    mode: Annotated[
        str, Parameter(help="canonical: plain collectives, quickly; full: overlap and schedule too.")
    ] = "canonical",
    timeout: Annotated[str, Parameter(help="The longest the compiler may take.")] = "900s",
    memory: Annotated[str, Parameter(help="The most of this machine's memory it may take.")] = "8GB",
    html: Annotated[str | None, Parameter(help="Write the report as a page of its own to this file.")] = None,
    cache: Annotated[bool, Parameter(help="Use what was compiled before, if nothing has changed since.")] = True,
    option: Annotated[
        tuple[str, ...], Parameter(negative="", help="An option of the compiler, name=value; may be repeated.")
    ] = (),
    json: Json = False,
) -> int:
    """Does the real compiler agree with the plan? Memory, FLOPs and every collective, planned and compiled."""
    from dragonscale.reports.verify.question import VerifyQuestion, read_question

    asked = read_question(
        VerifyQuestion(plan, model, on, batch, seq, program, mode, timeout, memory, tuple(option), stack)
    )
    if html is not None and not html.lower().endswith((".html", ".htm")):
        raise InputError(f"--html is {shorten(html)}; the name of a page should end in .html.")
    for text in asked.notes:
        note(text)
    report = verified(asked, cache)
    code = show(report, json)
    if html is not None:
        from dragonscale.reports.verify.html import save_page

        save_page(report, html)
        note(f"Wrote {html}.")
    return code


def verified(asked: Any, cached: bool = True) -> Any:
    """Compile and compare, with a word on stderr to the person who waits."""
    import sys

    from dragonscale.evidence.verify.quiet import verify_quietly
    from dragonscale.reports.verify.fit import with_fitting_plan

    if sys.stderr.isatty():
        note(f"Compiling for {asked.request.slice}; this takes half a minute or more the first time.")
    return with_fitting_plan(verify_quietly(asked.request, asked.timeout, asked.memory, cached, asked.stack))


def show(report: Any, json: bool) -> int:
    """Print a report; returns the exit code it stands for."""
    from dragonscale.cli.verify_text import text_of
    from dragonscale.reports.verify.words import exit_code

    emit_json(report) if json else put(text_of(report))
    return exit_code(report)


def conclude(report: Any, say_it: Callable[[], None], ask: Callable[[], Any] | None, json: bool) -> int:
    """Print another command's answer and, where `ask` says what to compile, its verification: below the text, or inside the
    JSON as `verification`. Returns the exit code of the verification, 0 without one."""
    if ask is None:
        emit_json(report) if json else say_it()
        return 0
    if not json:
        say_it()
        found = verified(ask())
        print()
        return show(found, json)
    import msgspec

    from dragonscale.reports.verify.words import exit_code

    found = verified(ask())
    emit_json({**msgspec.to_builtins(report), "verification": found})
    return exit_code(found)
