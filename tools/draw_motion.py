"""The four collectives as a moving picture: docs/pictures/motion/collectives.svg.

Four chips in a ring, four slots on each. A slot's colour says whose part of the array it holds; pale slots are partial
sums. Whoever asks for less motion sees each collective's result instead.

python -m tools.draw_motion
"""

from pathlib import Path

from dragonscale.blocks.charts.theme import LIGHT

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "motion" / "collectives.svg"
CHIPS = 4
PARTS = [LIGHT.colour(f"@{role}") for role in ("compute", "hbm", "tensor", "weights")]
INK, MUTED, GRID, PAPER = (LIGHT.colour(f"@{role}") for role in ("ink", "muted", "grid", "background"))
LEFT, APART, SLOT, ROW, TOP = 250, 120, 22, 74, 20
HOPS = 2 * (CHIPS - 1)
CYCLE = 9.0
"""Seconds of a cycle; every hop has a twelfth of it, and the result stays until its end."""
ROWS = {
    "AllGather": ("A[I_X, J] → A[I, J]", "every chip gets every part"),
    "ReduceScatter": ("A[I, J]{U_X} → A[I_X, J]", "partial sums are added; each chip keeps one part"),
    "AllReduce": ("A[I, J]{U_X} → A[I, J]", "a ReduceScatter, then an AllGather"),
    "AllToAll": ("A[I_X, J] → A[I, J_X]", "each chip sends a different piece to each other"),
}


def percent(hop: float) -> str:
    """When a hop ends, as part of the cycle."""
    return f"{hop * 100 / 12:.2f}%"


def keyframes() -> str:
    """A slot that fills or empties at the end of a hop, and a part on its way during one."""
    found: list[str] = []
    for hop in range(1, HOPS + 1):
        start, end, after = percent(hop - 1), percent(hop), percent(hop + 0.01)
        found.append(f"@keyframes fill{hop}{{0%,{end}{{opacity:0}}{after},100%{{opacity:1}}}}")
        found.append(f"@keyframes empty{hop}{{0%,{start}{{opacity:1}}{percent(hop - 0.99)},100%{{opacity:0}}}}")
        there = "transform:translate(var(--x),var(--y))"
        away = f"{start}{{opacity:0;transform:none}}{percent(hop - 0.99)}{{opacity:1;transform:none}}"
        found.append(f"@keyframes move{hop}{{0%,{away}{end}{{opacity:1;{there}}}{after},100%{{opacity:0;{there}}}}}")
    return "".join(found)


def place(chip: int, slot: int, row: int) -> tuple[int, int]:
    """The upper left corner of a slot."""
    return LEFT + chip * APART + 3 + slot * (SLOT + 2), TOP + row * ROW + 12


def slot(
    where: tuple[int, int], part: int, word: str = "", pale: bool = False, to: tuple[int, int] | None = None
) -> str:
    """One slot with a part; `word` is how it is animated, `to` where it goes."""
    x, y = where
    style = f' style="--x:{to[0] - x}px;--y:{to[1] - y}px"' if to else ""
    faint = ' fill-opacity="0.45"' if pale else ""
    gone = word.startswith(("empty", "move"))  # by the end, which is what is seen without motion
    hidden = ' opacity="0"' if gone else ""
    kind = f'{hidden} class="{word}"' if word else ""
    return f'<rect x="{x}" y="{y}" width="{SLOT}" height="26" rx="3" fill="{PARTS[part]}"{faint}{kind}{style}/>'


def gathered(row: int, first: int) -> list[str]:
    """Parts go round the ring from their chips, hop after hop from `first` on."""
    found: list[str] = []
    for part in range(CHIPS):
        for hop in range(1, CHIPS):
            chip = (part + hop) % CHIPS
            before, here = place((chip - 1) % CHIPS, part, row), place(chip, part, row)
            found += [slot(here, part, f"fill{first + hop - 1}"), slot(before, part, f"move{first + hop - 1}", to=here)]
    return found


def reduced(row: int) -> list[str]:
    """Partial sums go round the ring to the chip that keeps their part, adding up on the way."""
    found = [slot(place(part, part, row), part, f"fill{CHIPS - 1}") for part in range(CHIPS)]
    for part in range(CHIPS):
        for hop in range(1, CHIPS):
            chip = (part + hop) % CHIPS
            here, to = place(chip, part, row), place((chip + 1) % CHIPS, part, row)
            found += [slot(here, part, f"empty{hop}", pale=True), slot(here, part, f"move{hop}", pale=True, to=to)]
        found.append(slot(place(part, part, row), part, f"empty{CHIPS}", pale=True))
    return found


def exchanged(row: int) -> list[str]:
    """Piece d of chip c goes to chip d, where it is piece c."""
    found: list[str] = []
    for chip in range(CHIPS):
        for piece in range(CHIPS):
            here, to = place(chip, piece, row), place(piece, chip, row)
            hop = (piece - chip) % CHIPS
            if not hop:
                found.append(slot(here, chip))
                continue
            found += [slot(here, chip, f"empty{hop}"), slot(here, chip, f"move{hop}", to=to)]
            found.append(slot(to, chip, f"fill{hop}"))
    return found


def drawn() -> str:
    """The picture."""
    own = [slot(place(part, part, 0), part) for part in range(CHIPS)]
    parts = [*own, *gathered(0, 1), *reduced(1), *reduced(2), *gathered(2, CHIPS), *exchanged(3)]
    names = [f"{kind}{hop}" for hop in range(1, HOPS + 1) for kind in ("fill", "empty", "move")]
    style = "".join(f".{name}{{animation:{name} {CYCLE}s linear infinite}}" for name in names)
    still = "*{animation:none!important}"
    words: list[str] = []
    for row, (name, (signature, about)) in enumerate(ROWS.items()):
        y = TOP + row * ROW
        words.append(f'<text x="10" y="{y + 18}" fill="{INK}" font-size="14" font-weight="bold">{name}</text>')
        words.append(
            f'<text x="10" y="{y + 36}" fill="{INK}" font-size="12" font-family="monospace">{signature}</text>'
        )
        words.append(f'<text x="10" y="{y + 53}" fill="{MUTED}" font-size="10">{about}</text>')
        for chip in range(CHIPS):
            x, _ = place(chip, 0, row)
            frame = f'fill="none" stroke="{GRID}" stroke-width="2"'
            words.append(f'<rect x="{x - 4}" y="{y + 7}" width="104" height="36" rx="5" {frame}/>')
            words.append(f'<text x="{x}" y="{y + 55}" fill="{MUTED}" font-size="10">chip {chip}</text>')
    width, height = LEFT + CHIPS * APART, TOP + len(ROWS) * ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    rules = f"<style>{keyframes()}{style}@media (prefers-reduced-motion: reduce){{{still}}}</style>"
    paper = f'<rect width="{width}" height="{height}" fill="{PAPER}"/>'
    title = "<title>AllGather, ReduceScatter, AllReduce and AllToAll over four chips of a ring</title>"
    return f'{head} role="img" font-family="sans-serif">{title}{rules}{paper}{"".join(words + parts)}</svg>\n'


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(drawn(), encoding="utf-8")
