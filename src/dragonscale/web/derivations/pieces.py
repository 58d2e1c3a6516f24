"""The parts of a derivation as plain data, which the page's drawer lays out."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from dragonscale.commands.explain.formulas import FormulaLine
from dragonscale.physics.hardware import Chip
from dragonscale.web.amounts import Amount
from dragonscale.web.derivations.maths import math_tree

Piece = dict[str, Any]


class Derivation(Protocol):
    """What derives the numbers of an answer by their ids."""

    def facts(self, number: str) -> Piece: ...

    def formula(self, number: str) -> Piece: ...

    def crossovers(self, number: str) -> list[str]: ...


_ADDRESS = re.compile(r"https?://\S+")


def titled(name: str) -> str:
    """A term's name as a title: short names of methods in capitals.

    >>> titled("fsdp collectives"), titled("weights")
    ('FSDP collectives', 'Weights')
    """
    first, _, rest = name.partition(" ")
    return f"{first.upper() if first in ('mlp', 'fsdp', 'kv', 'hbm') else first[:1].upper() + first[1:]} {rest}".strip()


def row(name: str, number: Amount, note: str = "") -> Piece:
    """A part of a sum, or a number put into a formula."""
    return {"name": name, "number": number, "note": note}


def step(title: str, rows: Iterable[Piece], total: Amount | None = None, text: str = "") -> Piece:
    """One step of how a number is put together."""
    return {"title": title, "text": text, "rows": list(rows), "total": total}


Compared = tuple[Piece, list[Piece]]
"""What stands beside a number with why it differs, and the sources of that."""


def compared(text: str, sources: list[Piece], rows: Iterable[Piece] = ()) -> Compared:
    """Why a number differs from what stands in the rows."""
    return {"rows": list(rows), "text": text}, sources


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], text: str = "") -> Piece:
    """Lines of a ledger: texts and amounts."""
    return {"title": title, "text": text, "columns": list(columns), "lines": [list(one) for one in rows]}


def facts(
    title: str,
    sentence: str,
    number: Amount,
    *,
    steps: Iterable[Piece] = (),
    compared: Piece | None = None,
    error: str = "",
    sources: Iterable[Piece] = (),
    docs: tuple[str, str] | None = None,
    more: bool = True,
) -> Piece:
    """The half of a derivation that is there at once; `more` where formulas follow."""
    found = list({(one["text"], one.get("url", "")): one for one in sources}.values())
    place = None if docs is None else {"page": docs[0], "anchor": docs[1]}
    return {
        "title": title,
        "sentence": sentence,
        "number": number,
        "steps": list(steps),
        "compared": compared,
        "error": error,
        "sources": found,
        "docs": place,
        "more": more,
    }


def formula(line: FormulaLine) -> Piece:
    """A formula, and the same with numbers in, as trees and as text."""
    drawn = None if line.numbers == line.formula else math_tree(line.numbers)
    return {
        "name": line.name,
        "text": line.formula,
        "math": math_tree(line.formula),
        "value": line.value,
        "value_si": line.value_si,
        "numbers": line.numbers if line.numbers != line.formula else "",
        "put_in": drawn,
    }


def letter(name: str, value: str, what: str, come_from: str) -> Piece:
    """What a letter stands for."""
    return {"letter": name, "math": math_tree(name), "value": value, "what": what, "from": come_from}


def formulas(
    lines: Iterable[FormulaLine],
    letters: Iterable[Piece] = (),
    crossovers: Iterable[str] = (),
    notes: Iterable[str] = (),
) -> Piece:
    """The half that is derived by algebra: only letters that are in some formula are told."""
    every = list(lines)
    used = {name for line in every for name in re.findall(r"[^\W\d]\w*", line.formula)}
    return {
        "formulas": [formula(line) for line in every],
        "letters": [one for one in letters if one["letter"] in used],
        "crossovers": list(crossovers),
        "notes": list(notes),
    }


def source(text: str) -> Piece:
    """A source as a chip's file writes it: its title, and the address it ends with."""
    found = _ADDRESS.search(text)
    return {"text": _ADDRESS.sub("", text).strip(), "url": found[0] if found else ""}


def chip_source(chip: Chip, path: str) -> Piece | None:
    """Where a number of a chip comes from."""
    fact = chip.facts.get(path)
    if fact is None:
        return None
    whole = chip.sources.get(fact.source, fact.source)
    found = source(whole)
    noted = f" ({fact.note})" if fact.note else ""
    return found | {"text": f"{chip.title}, {path}: {found['text']}{noted}"}


def fact_origin(chip: Chip, path: str) -> str:
    """The same in a few words, for a table."""
    found = chip_source(chip, path)
    return found["text"] if found is not None else f"{chip.title}"


def chip_sources(chip: Chip, paths: Iterable[str]) -> list[Piece]:
    """The sources of several numbers of a chip."""
    return [found for path in paths if (found := chip_source(chip, path)) is not None]


def profile_sources(sources: Mapping[str, Any]) -> list[Piece]:
    """The sources that a profile lists."""
    return [{"text": f"{one.title} ({one.date})", "url": one.url} for one in sources.values()]
