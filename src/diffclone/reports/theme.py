"""Colours of the pages, in light and dark.

Figures are drawn in the light colours. On a page each colour is replaced by its CSS variable, so that figures follow
the colour scheme of the reader.
"""

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f5f5f2",
    "ink": "#1b1f24",
    "soft": "#575e68",
    "line": "#dcdbd5",
    "band": "#e8e7e0",
    "wall": "#c6c5bf",
    "link": "#1d4f91",
    "good": "#17653a",
    "bad": "#a3283d",
    "same": "#36548a",
    "open": "#75560a",
    "orange": "#ad4f08",
    "blue": "#2458a8",
    "red": "#b02a30",
    "green": "#1c7443",
    "purple": "#7a35b0",
}
DARK = {
    "paper": "#14171b",
    "panel": "#1d2127",
    "ink": "#e4e6ea",
    "soft": "#a7aeb9",
    "line": "#343a43",
    "band": "#2b313a",
    "wall": "#4b535e",
    "link": "#9cc4f8",
    "good": "#7fd6a0",
    "bad": "#f59aa8",
    "same": "#a9c1ea",
    "open": "#e3c26f",
    "orange": "#f5b066",
    "blue": "#8fbcf5",
    "red": "#f29a98",
    "green": "#84dba8",
    "purple": "#cfaef5",
}
TEXT_COLOURS = ("ink", "soft", "link", "good", "bad", "same", "open", "orange", "blue", "red", "green", "purple")
"""Colours used for text and lines; each must stand out on `paper` and on `panel`."""
