"""Tables of the defaults of training, from Records of scripts/training_defaults.py."""

from pathlib import Path

import numpy as np

from diffclone.experiments.study.results import difference, estimate
from diffclone.records import Record
from diffclone.reports.numbers import format_signed, unit_label
from docs.study_tables import describe, signed, unit_of

RECORDS = Path(__file__).parent / "records" / "defaults.jsonl.gz"
BASE = "plain"


def defaults_table() -> str:
    """Return BC on validation starts, and each variant minus it, paired by seed and start."""
    records = Record.read_all(RECORDS)
    names = list(dict.fromkeys(str(r.results["variant"]) for r in records))
    found = {(r.results["setting"], r.results["variant"]): estimate(r) for r in records}
    heads = ["setting", "updates", BASE, *(name for name in names if name != BASE), "seeds × starts"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    means: dict[str, list[float]] = {}
    for setting in dict.fromkeys(str(r.results["setting"]) for r in records):
        base, unit = found[setting, BASE], unit_of(setting)
        cells = [f"{setting} ({unit_label(unit)})", f"{base.snapshot:,}", describe(base, unit)]
        for name in heads[3:-1]:
            own = found.get((setting, name))
            cells.append("–" if own is None else signed(difference(own, base), unit))
            if own is not None and unit == "success":
                means.setdefault(name, []).append(difference(own, base).mean)
        lines.append(f"| {' | '.join(cells)} | {' × '.join(map(str, base.outcomes.shape))} |")
    shown = [f"**{format_signed(float(np.mean(means[name])), 'success')}**" for name in heads[3:-1]]
    lines.append(f"| **mean of the settings with success** | | | {' | '.join(shown)} | |")
    return "\n".join(lines)


BLOCKS = {"training-defaults": defaults_table}
"""For docs/make.py."""
