"""The moving picture of the collectives: drawn by its tool, correct in its result, and still for who asks for that."""

import re

from tools.draw_motion import CHIPS, PICTURE, drawn


def test_the_moving_picture_is_as_it_is_drawn_and_can_stand_still() -> None:
    text = PICTURE.read_text("utf-8")
    assert text == drawn(), "run python -m tools.draw_motion"
    assert len(text) < 40_000
    still = text.partition("@media (prefers-reduced-motion: reduce)")[2].partition("</style>")[0]
    assert "animation:none" in still
    assert not re.findall(
        r'fill="#\w+"(?: fill-opacity="0.45")? class="(?:move|empty)', text
    )  # only the result is seen


def test_the_result_of_each_collective_is_what_its_signature_says() -> None:
    """What stays at the end of the cycle: slots that fill, and those that never move."""
    last = re.findall(
        r'<rect x="(\d+)" y="(\d+)" width="22"[^>]*? fill="(#\w+)"[^>]*?(?: class="(\w+)"[^>]*)?/>', drawn()
    )
    rows: dict[int, set[tuple[int, str]]] = {}
    for x, y, colour, word in last:
        if not word or word.startswith("fill"):
            rows.setdefault(int(y), set()).add((int(x), colour))
    gathered, scattered, reduced, exchanged = (found for _, found in sorted(rows.items()))
    assert len(gathered) == len(reduced) == len(exchanged) == CHIPS * CHIPS
    assert len(scattered) == CHIPS
    assert gathered == reduced  # every chip has every part
    assert scattered < gathered
    assert exchanged == gathered  # piece c of every chip came from chip c
