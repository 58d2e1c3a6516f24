"""A verification as one page of HTML: no scripts, nothing loaded from elsewhere, readable on a phone, light and dark.

The numbers are the rows of `verify_view`, the sentences those of `verify_words`; only the shape is made here.
"""

from html import escape
from pathlib import Path

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.verify.records import VerifyReport
from dragonscale.reports.verify import view, words
from dragonscale.reports.verify.page_style import STYLE


def save_page(report: VerifyReport, path: str) -> None:
    """Write the page to a file."""
    try:
        Path(path).write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise InputError(f"The page cannot be written to {shorten(path)}: {error.strerror}.") from None


def page(report: VerifyReport) -> str:
    """The whole page."""
    parts = [
        _head(report),
        _section("On each chip", "".join(_card(row) for row in view.totals(report))),
        _section("Bytes each chip sends, by mesh axes", "".join(_card(row) for row in view.axis_rows(report))),
        _section("The planned peak, by part", _list(view.memory_items(report))),
        _section("Largest buffers", _list(view.largest_items(report))),
        _section("Only the plan has", _list(view.unmatched_items(report.only_planned))),
        _section("Only the compiler has", _list(view.unmatched_items(report.only_compiled))),
        _section("Hidden or exposed", _overlap(report)),
        _section("Slowest kernels by the compiler's estimate", _list(view.slowest_items(report))),
        _section("Beside the comparison", "".join(f"<p>{escape(one)}</p>" for one in view.remarks(report))),
        f"<footer>{escape(words.effort(report))}. Made by <code>dscale verify --html</code>; "
        f"<code>--json</code> has the same numbers.</footer>",
    ]
    title = escape(words.title(report.request))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style></head>\n<body><main>\n{''.join(parts)}\n</main></body></html>\n"
    )


def _head(report: VerifyReport) -> str:
    request = report.request
    found = words.outcome(report)
    kind = found if found in (words.AGREES, words.EXPLAINED, words.DIFFERS) else "no"
    trouble = f'<p class="why">{escape(words.sentence(report.trouble))}</p>' if report.trouble else ""
    return (
        f'<span class="mark {kind}">{escape(found)}</span>\n'
        f"<h1>{escape(request.model)} on {escape(request.slice)}</h1>\n"
        f"<p><code>{escape(request.plan)}</code></p>\n"
        f'<p class="soft">{escape(request.program)}: {escape(words.work(request))}, {escape(request.mode)} mode</p>\n'
        f'{trouble}<p class="lead">{escape(words.closing(report))}</p>\n'
    )


def _section(heading: str, inside: str) -> str:
    return f"<section><h2>{escape(heading)}</h2>{inside}</section>\n" if inside else ""


def _card(row: view.Row) -> str:
    """A number: its verdict and ratio, a bar for the plan and one for the compiler, its parts and why they differ."""
    parts = "".join(_part(part) for part in row.below)
    below = f'<div class="parts">{parts}</div>' if parts else ""
    why = f'<p class="why">{escape(row.why)}</p>' if row.why else ""
    return (
        f'<div class="card tone-{escape(row.verdict)}"><div class="top"><b>{escape(row.name)}</b>'
        f'<span class="{escape(row.verdict)}"><span class="ratio">{_times(row.ratio)}</span> {escape(row.verdict)}</span></div>'
        f"{_pair(row)}{why}{below}</div>\n"
    )


def _pair(row: view.Row) -> str:
    return (
        f'<div class="pair"><span class="who">planned</span>{_bar(row.planned_share, "planned")}<span>{row.planned}</span>'
        f'<span class="who">compiled</span>{_bar(row.compiled_share, "compiled")}<span>{row.compiled}</span></div>'
    )


def _part(row: view.Row) -> str:
    """A part of a number in one line, its two bars one above the other."""
    return (
        f'<div class="part"><span>{escape(row.name)}</span>'
        f'<span class="bars">{_bar(row.planned_share, "planned")}{_bar(row.compiled_share, "compiled")}</span>'
        f"<span>{row.planned} → {row.compiled}</span><span>{_times(row.ratio)}</span></div>"
    )


def _times(ratio: str) -> str:
    return f"× {ratio}" if ratio[-1:].isdigit() else ratio


def _bar(share: float, kind: str) -> str:
    width = 100 * min(1.0, max(0.0, share))
    return f'<span class="bar"><i class="{kind}" style="width:{width:.2f}%"></i></span>'


def _list(items: list[view.Item]) -> str:
    if not items:
        return ""
    lines = []
    for one in items:
        about = "".join(f'<div class="soft">{_about(text)}</div>' for text in one.about)
        lines.append(
            f'<li><div class="top"><span>{escape(one.name)}</span><b>{escape(one.amount)}</b></div>{about}</li>'
        )
    return f"<ul>{''.join(lines)}</ul>"


def _about(text: str) -> str:
    """A name of an operation or a place in the source is set as code, a sentence as a sentence."""
    return escape(text) if " " in text else f"<code>{escape(text)}</code>"


def _overlap(report: VerifyReport) -> str:
    rows = view.overlap_rows(report.overlap)
    if not rows:
        return ""
    lines = []
    for name, what, size, planned, compiled, agrees in rows:
        cells = "".join(f"<td>{escape(text)}</td>" for text in (name, what))
        kind = "agrees" if agrees else "differs"
        lines.append(
            f'<tr>{cells}<td class="n">{escape(size)}</td><td>{escape(planned)}</td>'
            f'<td class="{kind}">{escape(compiled)}</td></tr>'
        )
    heads = '<tr><th>collective</th><th>what</th><th class="n">sent</th><th>planned</th><th>compiled</th></tr>'
    return f'<div class="scroll"><table>{heads}{"".join(lines)}</table></div>'
