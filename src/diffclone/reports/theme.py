"""Colours of the pages, in light and dark.

Figures are drawn in the light colours. On a page each colour is replaced by its CSS variable, so that figures follow
the colour scheme of the reader.
"""

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f3f4f6",
    "ink": "#111827",
    "soft": "#4b5563",
    "line": "#d1d5db",
    "wall": "#c2c8d0",
    "link": "#1e40af",
    "good": "#166534",
    "bad": "#9f1239",
    "same": "#334155",
    "orange": "#b45309",
    "blue": "#1d4ed8",
    "red": "#b91c1c",
    "green": "#15803d",
    "purple": "#7e22ce",
}
DARK = {
    "paper": "#111827",
    "panel": "#1f2937",
    "ink": "#e5e7eb",
    "soft": "#a8b0bd",
    "line": "#374151",
    "wall": "#4d5869",
    "link": "#a5c8ff",
    "good": "#86efad",
    "bad": "#fda4af",
    "same": "#cbd5e1",
    "orange": "#fdba74",
    "blue": "#93c5fd",
    "red": "#fca5a5",
    "green": "#86efac",
    "purple": "#d8b4fe",
}
TEXT_COLOURS = ("ink", "soft", "link", "good", "bad", "same", "orange", "blue", "red", "green", "purple")
"""Colours used for text and lines; each must stand out on `paper` and on `panel`."""
