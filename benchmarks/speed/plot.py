"""Figure of member-updates per second by number of members, ours beside other ways to train."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.tables import sorted_cases
from diffclone.files import write_atomically
from diffclone.records import Record

LINES = {"ours": ("#0f766e", "ours"), "vmap": ("#7c3aed", "torch.func.vmap"), "released": ("#6b7280", "released style")}

Curves = Mapping[tuple[str, int], Mapping[str, Sequence[tuple[int, float]]]]
"""By device and width: lines of (members, member-updates per second)."""


def curves(records: Sequence[Record]) -> Curves:
    """Return the curves of diffusion models that were timed with several stack sizes."""
    found: dict[tuple[str, int], dict[str, list[tuple[int, float]]]] = {}
    for record in sorted_cases(records):
        case, rates = record.settings["case"], record.results["rates"]
        if case["model"] != "guide":
            continue
        panel = found.setdefault((record.device, record.settings["width"]), {})
        for name in LINES:
            if name in rates:
                panel.setdefault(name, []).append((case["members"], rates[name]["member_updates_per_second"]))
    return {panel: lines for panel, lines in found.items() if len(lines["ours"]) > 1}


def to_svg(shown: Curves) -> str:
    """Draw one panel per device and width with logarithmic axes. The released style trains one member at a time."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: Any = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "svg.hashsalt": "diffclone"}
    with mpl.rc_context({**style, "svg.fonttype": "none"}):
        figure = Figure(figsize=(3.4 * len(shown), 3.0))
        for axes, ((device, width), lines) in zip(
            figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True
        ):
            for name, points in lines.items():
                colour, label = LINES[name]
                axes.loglog(*zip(*points, strict=True), color=colour, marker="o", markersize=3, label=label)
            members = [m for m, _ in lines["ours"]]
            axes.set_xticks(members, [str(m) for m in members])
            axes.minorticks_off()
            axes.set_title(f"{device}, {width} wide")
            axes.set_xlabel("members")
            axes.set_ylabel("member-updates per second")
            axes.legend(frameon=False)
        figure.tight_layout()
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def write_plot(records: Sequence[Record], path: Path) -> bool:
    """Write the figure. Return whether there was anything to draw."""
    shown = curves(records)
    if shown:
        write_atomically(path, to_svg(shown).encode())
    return bool(shown)
