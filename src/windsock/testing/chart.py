"""Measured figures as a picture and as a table: bars in an SVG, a grid in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Figures"]

_WIDTH, _LABEL, _VALUE = 640, 130, 90
_BAR, _GAP, _HEAD = 20, 8, 44
_COLOURS = ("#2f6f9f", "#c8793a", "#7a7a7a", "#5b8c5a", "#8c5b7f")


@dataclass(frozen=True)
class Figures:
    """What was measured: one row per way of doing it, one column per question, each with its unit."""

    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[float]]]

    def markdown(self) -> str:
        """A table."""
        head = ["", *(f"{name} ({unit})" for name, unit in self.columns)]
        lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * len(self.columns)}"]
        for label, values in self.rows:
            lines.append(f"| {label} | {' | '.join(_number(value) for value in values)} |")
        return "\n".join(lines) + "\n"

    def svg(self) -> str:
        """One group of horizontal bars per column, each on its own scale from zero."""
        parts: list[str] = []
        y = 34
        for index, (name, unit) in enumerate(self.columns):
            values = [row[index] for _, row in self.rows]
            largest = max(values, default=0) or 1
            y += _HEAD // 2
            parts.append(_text(12, y, f"{name} ({unit})", "font-size='13'"))
            y += _GAP
            for (label, _), value, colour in zip(self.rows, values, _colours(len(values)), strict=True):
                length = round((_WIDTH - _LABEL - _VALUE) * value / largest, 1)
                middle = y + _BAR * 0.72
                parts += [
                    _text(_LABEL - 8, middle, label, "font-size='12' text-anchor='end'"),
                    f"<rect x='{_LABEL}' y='{y}' width='{length}' height='{_BAR}' fill='{colour}'/>",
                    _text(_LABEL + length + 6, middle, _number(value), "font-size='12'"),
                ]
                y += _BAR + _GAP
        height = y + 12
        return "\n".join(
            [
                f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{height}' role='img'>",
                f"<title>{escape(self.title)}</title>",
                f"<rect width='{_WIDTH}' height='{height}' fill='white'/>",
                _text(12, 24, self.title, "font-size='15' font-weight='bold'"),
                *parts,
                "</svg>\n",
            ]
        )


def _text(x: float, y: float, text: str, style: str) -> str:
    return f"<text x='{x:g}' y='{y:g}' font-family='system-ui, sans-serif' {style}>{escape(text)}</text>"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _colours(count: int) -> list[str]:
    return [_COLOURS[index % len(_COLOURS)] for index in range(count)]
