"""Cards of the page inside docs, and links with a picture: their questions have answers, and they stand where their
picture stood."""

import re
from html import unescape

import pytest

from dragonscale.web.page_bundle import script
from tools.static_edition.build import page_files
from tools.static_edition.cards import LiveCard, cards, finished, stop_of
from tools.static_edition.links import link_files, picture, said_at
from tools.static_edition.parts import HERE

DOCS = HERE.parents[1] / "docs"


@pytest.mark.parametrize("card", cards(), ids=lambda card: card.name)
def test_a_card_stands_in_the_place_of_a_picture_of_its_page(card: LiveCard):
    text = (DOCS / card.page).read_text("utf-8")
    assert f"pictures/{card.picture}.svg" in text
    html = f'<p><img src="../pictures/{card.picture}.svg"><img src="../pictures/{card.picture}-dark.svg"></p>'
    made = finished(html, card.page, "../")
    assert f'src="../app/card.html#{card.name}"' in made
    assert html.removeprefix("<p>").removesuffix("</p>") in made.partition("<noscript>")[2]
    assert finished(html, "another.md", "../") == html


@pytest.mark.parametrize("name", ["decode-batch", "fsdp-hides"])
def test_a_stop_of_a_card_is_answered_with_its_formulas(name: str):
    card = next(one for one in cards() if one.name == name)
    stop = stop_of(card, card.stops[card.start])
    assert stop["sentence"]
    assert stop["parts"]
    assert len(stop["formulas"]) == len(card.numbers)
    assert all(one["math"] and one["put_in"] for one in stop["formulas"])


def test_the_script_of_cards_is_whole():
    modules = {name: data.decode() for name, data in page_files().items() if name.endswith(".js")}
    assert not re.search(r"^(import|export) ", script(modules, "js/live_card.js"), re.MULTILINE)


def test_a_link_has_the_picture_and_the_sentence_of_its_answer(monkeypatch):
    monkeypatch.setattr("tools.static_edition.links.painted", lambda _: {})
    address = "#train?model=llama3-8b&on=h100:8&batch=64seq&seq=8192&plan=fsdp8"
    sentence, figures = said_at(address)
    files = link_files({"mine": (address, sentence, figures)}, "https://example.org/app/")
    page = files["links/mine.html"].decode()
    assert f'property="og:title" content="{sentence}"' in unescape(page)
    assert 'og:image" content="https://example.org/app/links/mine.svg"' in page
    assert unescape(page).count(f"../index.html{address}") == 2
    assert figures[0][1] in files["links/mine.svg"].decode()


def test_what_is_typed_stays_text_in_a_link(monkeypatch):
    monkeypatch.setattr("tools.static_edition.links.painted", lambda _: {})
    hostile = '"><script>alert(1)</script>'
    assert "<script" not in picture(hostile, [(hostile, hostile)])
    page = link_files({"mine": (f"#train?model={hostile}", hostile, [])})["links/mine.html"].decode()
    assert "<script" not in page
