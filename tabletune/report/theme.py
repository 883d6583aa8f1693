"""The colours, in a light and a dark variant, and how figures refer to them.

A figure asks its palette for a colour by name. For PNG files the palette answers with the
light colour. For SVG it answers with a placeholder that `canvas` replaces by a CSS variable, so
that one drawing follows the reader's light or dark setting.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import matplotlib
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb

#: Levels of the sequential scale of the heat maps.
HEAT_LEVELS = 16

_BASE = {
    "paper": ("#ffffff", "#14171b"),
    "ink": ("#16191d", "#e9ebee"),
    "muted": ("#5d6570", "#a0a7b1"),
    "rule": ("#dcdfe4", "#30363d"),
    "bar": ("#d3dbe6", "#2f3b4a"),
    "faint": ("#f4f5f7", "#1c2026"),
    "pass": ("#0a6b4b", "#62cfa4"),
    "fail": ("#b93a0e", "#ff9a6b"),
    "pass-faint": ("#e6f3ee", "#14291f"),
    "fail-faint": ("#fcece4", "#33200f"),
}
_HEAT_LIGHT = ("#fdf4e8", "#f6c98f", "#dd8a3d", "#a9501a", "#6a2b0c")
_HEAT_DARK = ("#2a1f17", "#63371a", "#a5602a", "#e19a55", "#ffdcae")


def _luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2) of a hex colour, 0 … 1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """Contrast ratio (WCAG 2.2) of two hex colours, 1 … 21."""
    high, low = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _on(colour: str) -> str:
    """The text colour that reads better on `colour`."""
    return max(("#ffffff", "#101317"), key=lambda text: contrast(text, colour))


@dataclass(frozen=True)
class Theme:
    """Named colours for draft lengths 0 … `max_draft_length`.

    Length 0 is grey, the others follow viridis (sequential, safe for colour-blind readers):
    the longer, the stronger against the page, so darker in light and brighter in dark.
    """

    max_draft_length: int

    @cached_property
    def colours(self) -> dict[str, tuple[str, str]]:
        """Name → (light, dark), as hex."""
        named = dict(_BASE)
        viridis = matplotlib.colormaps["viridis"]
        named["k0"] = ("#8b929c", "#7d8590")
        for length in range(1, self.max_draft_length + 1):
            share = (
                1.0 if self.max_draft_length == 1 else (length - 1) / (self.max_draft_length - 1)
            )
            light, dark = viridis(0.62 - 0.56 * share), viridis(0.40 + 0.45 * share)
            named[f"k{length}"] = (to_hex(light), to_hex(dark))
        light_scale = LinearSegmentedColormap.from_list("light", _HEAT_LIGHT)
        dark_scale = LinearSegmentedColormap.from_list("dark", _HEAT_DARK)
        for level in range(HEAT_LEVELS):
            share = level / (HEAT_LEVELS - 1)
            named[f"h{level}"] = (to_hex(light_scale(share)), to_hex(dark_scale(share)))
        for name in [n for n in named if re.fullmatch(r"[kh]\d+", n)]:
            light, dark = named[name]
            named[f"{name}-on"] = (_on(light), _on(dark))
        return named

    def css_variables(self, dark: bool) -> str:
        """The colours as CSS custom properties, one a line."""
        return "\n".join(f"--{name}: {pair[dark]};" for name, pair in self.colours.items())


class LightPalette:
    """Answers with the light colours, for PNG files."""

    def __init__(self, theme: Theme) -> None:
        self._colours = theme.colours

    def __getitem__(self, name: str) -> str:
        return self._colours[name][0]


class VariablePalette:
    """Answers with placeholders, for SVG; `to_variables` replaces them."""

    def __init__(self, theme: Theme) -> None:
        self._holders = {name: f"#00fe{i:02x}" for i, name in enumerate(theme.colours)}
        if len(self._holders) > 256:  # two hex digits name the colour
            self._holders = {name: f"#0{i:05x}" for i, name in enumerate(theme.colours)}
        self._names = {holder: name for name, holder in self._holders.items()}

    def __getitem__(self, name: str) -> str:
        return self._holders[name]

    def to_variables(self, svg: str) -> str:
        """`svg` with each placeholder replaced by its CSS variable."""

        def replace(match: re.Match[str]) -> str:
            name = self._names.get(match.group(0).lower())
            return f"var(--{name})" if name else match.group(0)

        return re.sub(r"#[0-9a-fA-F]{6}\b", replace, svg)


Palette = LightPalette | VariablePalette
