"""A verification as one page of HTML: no scripts, nothing loaded from elsewhere, readable on a phone, light and dark.

The numbers are the rows of `view`, the sentences those of `words`; only the shape is made here.
"""

from html import escape
from importlib import resources

from dragonscale.app.verify import verify_words as words
from dragonscale.app.verify import view
from dragonscale.evidence.verify.records import VerifyReport
from dragonscale.files import write_file

STYLE = "\n" + (resources.files("dragonscale.app.verify") / "page.css").read_text(encoding="utf-8")
"""How a report's page looks: one column that a phone can show, light or dark as the reader's device is."""


def save_page(report: VerifyReport, path: str) -> str:
    """Write the comparison as a page of HTML that needs nothing else."""
    write_file(path, page(report), "The page")
    return ""


def page(report: VerifyReport) -> str:
    """The whole page."""
    lists = {heading: _list(items) for heading, items in view.lists(report).items()}
    slowest = lists.popitem()
    sections = {
        "On each chip": "".join(_card(row) for row in view.totals(report)),
        "Bytes each chip sends, by mesh axes": "".join(_card(row) for row in view.axis_rows(report)),
        **lists,
        "Hidden or exposed": _overlap(report),
        slowest[0]: slowest[1],
        "Beside the comparison": "".join(f"<p>{escape(one)}</p>" for one in view.remarks(report)),
    }
    told = [
        f"<section><h2>{escape(heading[0].upper() + heading[1:])}</h2>{inside}</section>\n"
        for heading, inside in sections.items()
        if inside
    ]
    foot = (
        f"<footer>{escape(words.effort(report))}. Made by <code>dscale verify --html</code>; "
        f"<code>--json</code> has the same numbers.</footer>"
    )
    title = escape(words.title(report.request))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style></head>\n<body><main>\n{_head(report)}{''.join(told)}{foot}\n</main></body></html>\n"
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


def _card(row: view.Row) -> str:
    """A number: its verdict and ratio, a bar for the plan and one for the compiler, its parts and why they differ."""
    parts = "".join(_part(part) for part in row.below)
    below = f'<div class="parts">{parts}</div>' if parts else ""
    why = f'<p class="why">{escape(row.why)}</p>' if row.why else ""
    sides = (("planned", row.planned_share, row.planned), ("compiled", row.compiled_share, row.compiled))
    pair = "".join(f'<span class="who">{who}</span>{_bar(part, who)}<span>{text}</span>' for who, part, text in sides)
    return (
        f'<div class="card tone-{escape(row.verdict)}"><div class="top"><b>{escape(row.name)}</b>'
        f'<span class="{escape(row.verdict)}"><span class="ratio">{_times(row.ratio)}</span> '
        f"{escape(row.verdict)}</span></div>"
        f'<div class="pair">{pair}</div>{why}{below}</div>\n'
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
    lines = []
    for one in items:
        # A name of an operation or a place in the source is set as code, a sentence as a sentence.
        texts = [escape(text) if " " in text else f"<code>{escape(text)}</code>" for text in one.about]
        about = "".join(f'<div class="soft">{text}</div>' for text in texts)
        head = f'<div class="top"><span>{escape(one.name)}</span><b>{escape(one.amount)}</b></div>'
        lines.append(f"<li>{head}{about}</li>")
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


def _overlap(report: VerifyReport) -> str:
    lines = []
    for *texts, agrees in view.overlap_rows(report.overlap):
        name, what, size, planned, compiled = map(escape, texts)
        kind = "agrees" if agrees else "differs"
        cells = f'<td>{name}</td><td>{what}</td><td class="n">{size}</td><td>{planned}</td>'
        lines.append(f'<tr>{cells}<td class="{kind}">{compiled}</td></tr>')
    heads = '<tr><th>collective</th><th>what</th><th class="n">sent</th><th>planned</th><th>compiled</th></tr>'
    return f'<div class="scroll"><table>{heads}{"".join(lines)}</table></div>' if lines else ""
