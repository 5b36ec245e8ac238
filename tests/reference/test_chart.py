"""Measured figures, as a table and as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

from windsock.testing.chart import Figures

FIGURES = Figures(
    "Waiting <here>", [("held", "s"), ("asked", "times")], [("watcher", [0, 2]), ("sensor & co", [12.5, 8])]
)
SVG = "{http://www.w3.org/2000/svg}"


def test_the_table_has_every_figure() -> None:
    """One line per row, one cell per column, whole numbers without a fraction."""
    assert FIGURES.markdown().splitlines() == [
        "|  | held (s) | asked (times) |",
        "|---|---:|---:|",
        "| watcher | 0 | 2 |",
        "| sensor & co | 12.5 | 8 |",
    ]


def test_the_bars_are_as_long_as_the_figures() -> None:
    """Each column has its own scale; the largest figure's bar is the longest, and nothing is no bar."""
    picture = ElementTree.fromstring(FIGURES.svg())
    _, *bars = (float(bar.attrib["width"]) for bar in picture.iter(f"{SVG}rect"))
    assert bars[0] == 0
    assert bars[1] == bars[3] > 0
    assert bars[2] == bars[3] / 4


def test_the_picture_is_sound_and_says_what_it_shows() -> None:
    """Text is escaped, and every bar has its label and its figure."""
    picture = ElementTree.fromstring(FIGURES.svg())
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert texts[0] == "Waiting <here>"
    assert {"held (s)", "asked (times)", "sensor & co", "12.5"} <= set(texts)


def test_figures_that_are_all_zero_are_drawn() -> None:
    """Nothing measured is no reason to fail."""
    assert ElementTree.fromstring(Figures("none", [("held", "s")], [("a", [0])]).svg()).tag == f"{SVG}svg"
