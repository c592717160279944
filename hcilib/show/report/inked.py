"""A figure's colours as variables of the page, so that it is read on a light and on a dark screen alike."""

from __future__ import annotations

import re

from matplotlib.colors import to_hex, to_rgb

PAPER = "#17191c"
"""The dark page (templates/style.css)."""
NEUTRAL = 0.06
"""Below this difference between its channels a colour is a grey: on a dark page its lightness is turned round."""
LEAST = 3.2
"""Contrast of marks and lines with the page: 3 : 1 is asked for (WCAG 1.4.11)."""


def inked(svg: str) -> str:
    """The ``<svg>`` element alone, every colour as a variable that falls back to itself."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    return re.sub(r"(fill|stroke|stop-color): ?(#[0-9a-f]{6})", lambda m: f"{m[1]}: var(--i{m[2][1:]}, {m[2]})", svg)


def dark_inks(body: str) -> str:
    """CSS that gives every colour of a page's figures its like on a dark page."""
    colours = sorted(set(re.findall(r"var\(--i([0-9a-f]{6}),", body)))
    return ";".join(f"--i{colour}:{on_dark('#' + colour)}" for colour in colours)


def on_dark(colour: str) -> str:
    """The colour as it is drawn on a dark page: greys turned round, the rest lightened until it stands out."""
    red, green, blue = channels = to_rgb(colour)
    if max(red, green, blue) - min(red, green, blue) < NEUTRAL:
        grey = (red + green + blue) / 3
        low = sum(to_rgb(PAPER)) / 3
        turned = low + (0.93 - low) * (1 - grey)
        return to_hex((turned, turned, turned)) if grey < 0.999 else PAPER
    share = 0.0
    while contrast(lightened := _lighter(channels, share), PAPER) < LEAST and share < 1:
        share += 0.05
    return lightened


def _lighter(channels: tuple[float, float, float], share: float) -> str:
    red, green, blue = (c + (1 - c) * share for c in channels)
    return to_hex((red, green, blue))


def contrast(a: str, b: str) -> float:
    """WCAG 2's contrast ratio of two colours."""
    one, other = sorted((luminance(a), luminance(b)))
    return (other + 0.05) / (one + 0.05)


def luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
