"""Colours and style of the report's page, in light and dark. Every colour has a name, and each scheme gives it a value.

Figures are drawn in the light colours; on the page each is replaced by its name, so that they follow the scheme.
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
READ = ("ink", "soft", "link", "good", "bad", "same", "orange", "blue", "red", "green", "purple")
"""Colours of what is read, on `paper` and on `panel`."""

RULES = """
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; color: var(--ink); background: var(--paper);
       font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, video:focus-visible, [tabindex]:focus-visible {
  outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { position: static; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; list-style: none; }
section { margin-top: 3rem; }
h1 { line-height: 1.2; } h2 { border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
p, figcaption, dd { max-width: 46rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; }
caption { text-align: left; color: var(--soft); padding-bottom: .5rem; }
caption span { display: block; position: sticky; left: 0; width: min(46rem, calc(100vw - 2rem)); }
th[scope=row] { position: sticky; left: 0; background: var(--paper); min-width: 6rem; }
th, td { text-align: left; vertical-align: top; padding: .5rem 1.25rem .5rem 0; border-bottom: 1px solid var(--line); }
td span { display: block; } td { min-width: 9rem; } thead td { min-width: 0; }
.mean { font-weight: 600; font-size: 1.05rem; font-variant-numeric: tabular-nums; }
.soft, small { color: var(--soft); font-size: .875rem; font-weight: 400; }
.verdict { font-weight: 600; font-size: .9rem; }
.better { color: var(--good); } .short, .failed { color: var(--bad); } .agrees { color: var(--same); }
.banner { border: 2px solid var(--bad); border-radius: 6px; padding: .75rem 1rem; background: var(--panel); }
figure { margin: 1.5rem 0; }
figure svg { height: auto; max-width: 100%; }
video, figure img { max-width: 100%; height: auto; border: 1px solid var(--line); }
.films { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1.5rem; }
pre { overflow-x: auto; background: var(--panel); padding: .75rem; font-size: .85rem; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem; }
.records > li { margin: .5rem 0; padding-left: .25rem; }
li:target { background: var(--panel); outline: 2px solid var(--link); }
@media print { nav, .skip { display: none; } }
"""


def variables(scheme: dict[str, str]) -> str:
    """As CSS has them."""
    return " ".join(f"--{name}: {value};" for name, value in scheme.items())


def css() -> str:
    """The page's style sheet."""
    return (
        f":root {{ color-scheme: light dark; {variables(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}\n{RULES}"
    )
