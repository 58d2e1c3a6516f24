"""Words without which a pattern cannot match, so that most patterns need not be tried.

To look for a plain word is a hundred times faster than to try a pattern of many alternatives that ignores case. Words
are taken in lower case and are looked for in a name in lower case: more names pass than match, and none that matches is
lost.

>>> needed(r"(?i)^nvjet|_nvjet_|sdpa\\w*_(bprop|bwd)"), needed(r"(silu|gelu)\\w*"), needed(r"a?b*c|xyz")
(('nvjet', '_nvjet_', 'sdpa'), ('silu', 'gelu'), None)
"""

_SHORTEST = 3


def needed(pattern: str) -> tuple[str, ...] | None:
    """Words of which one must be in whatever the pattern matches; None where that cannot be told."""
    found: list[str] = []
    for alternative in _alternatives(pattern.removeprefix("(?i)")):
        words = _of_one(alternative)
        if words is None:
            return None
        found += words
    return tuple(dict.fromkeys(found))


def _alternatives(pattern: str) -> list[str]:
    """A pattern cut at the bars that stand in no bracket."""
    parts, at, begin = list[str](), 0, 0
    while at < len(pattern):
        if pattern[at] == "|":
            parts.append(pattern[begin:at])
            begin = at + 1
        at = _after(pattern, at)
    return [*parts, pattern[begin:]]


def _after(pattern: str, at: int) -> int:
    """Where the piece that begins here is over: a group, a class, an escape or one character."""
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] == "[":
        end = pattern.find("]", at + (3 if pattern[at + 1 : at + 2] == "^" else 2))
        return end + 1 if end > 0 else len(pattern)
    if pattern[at] != "(":
        return at + 1
    at += 1
    while at < len(pattern) and pattern[at] != ")":
        at = _after(pattern, at)
    return at + 1


def _of_one(pattern: str) -> list[str] | None:
    """The longest run of plain characters; else the words of a group that must be there."""
    runs, groups, run, at = list[str](), list[list[str]](), "", 0
    while at < len(pattern):
        end = _after(pattern, at)
        piece, behind = pattern[at:end], pattern[end : end + 1]
        optional = behind in ("?", "*", "{") and behind != ""
        plain = len(piece) == 1 and (piece.isalnum() or piece in "_: -,")
        if plain and not optional:
            run += piece
        else:
            runs.append(run)
            run = ""
            if piece.startswith("(") and not piece.startswith("(?") and not optional:
                inner = needed(piece[1:-1])
                groups += [list(inner)] if inner else []
        if behind == "+" or optional:
            runs.append(run)
            run = ""
            end = pattern.find("}", end) + 1 if behind == "{" else end + 1
        at = end
    best = max([*runs, run], key=len)
    if len(best) >= _SHORTEST:
        return [best.lower()]
    return groups[0] if groups else None
