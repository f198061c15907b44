"""Tables and figures of docs/fair-comparison.md, made from docs/records/study.jsonl.gz.

python -m docs.study_tables                     draw docs/images/training-length-SETTING.svg
python -m docs.study_tables OUT/records.jsonl   first add the Records of an output folder to docs/records/study.jsonl.gz
"""

import gzip
import json
import sys
from functools import cache
from pathlib import Path

from diffclone.experiments.study.candidates import (
    CONTROLS,
    DISTURBED,
    SINGLE_ACTIONS,
    SNAPSHOTS,
    TUNED_METHODS,
    UNTUNED,
)
from diffclone.experiments.study.plan import CONTROL_SETTINGS, DISTURBED_SETTINGS, SETTINGS
from diffclone.experiments.study.results import (
    Difference,
    Estimate,
    TunedRow,
    describe_configuration,
    difference,
    study_records,
    training_length,
    tuned_rows,
)
from diffclone.experiments.task_settings import TASK_SETTINGS
from diffclone.files import read_lines, write_atomically
from diffclone.records import Record
from diffclone.reports.numbers import format_number, format_signed, unit_label
from diffclone.reports.training_length import draw_training_length
from diffclone.tasks import TASKS

DOCS = Path(__file__).parent
RECORDS = DOCS / "records" / "study.jsonl.gz"
NOT_RUN = "not run"
PICTURE_UPDATES = 8_000
"""Updates of the policies in docs/images/bc-and-dbc.webp."""


@cache
def read_records() -> tuple[Record, ...]:
    """Return the Records, without shortened runs."""
    return tuple(record for record in Record.read_all(RECORDS) if not record.quick)


def unit_of(setting: str) -> str:
    """Return the metric of a setting."""
    return TASKS[TASK_SETTINGS[setting].task].metric


def describe(value: Estimate, unit: str) -> str:
    """Return a mean with its interval."""
    low, high = (format_number(end, unit) for end in value.interval)
    return f"{format_number(value.mean, unit)} ({low} … {high})"


def tuned_table() -> str:
    """Return one row per setting and method: what was tried, chosen and reported."""
    lines = [
        "| setting | method | tries | chosen | validation | evaluation, fresh seeds (95 %) | minus BC, paired (95 %) "
        "| seeds × starts |",
        f"|{'---|' * 8}",
    ]
    rows = {(row.setting, row.method): row for row in tuned_rows(read_records())}
    for setting in known_settings():
        unit = unit_of(setting)
        for method in TUNED_METHODS.values():
            row = rows.get((setting, method.name))
            if row is None or row.tries < method.tries:  # not run, or not complete
                continue
            lines.append(f"| {setting} ({unit_label(unit)}) | {row.method} | {row.tries} | {tuned_cells(row, unit)} |")
    return "\n".join(lines)


def tuned_cells(row: TunedRow, unit: str) -> str:
    """Return the cells of a tuned method: choice, score in validation, evaluation, minus BC, seeds × starts."""
    reported, count, minus = NOT_RUN, "–", "–"
    if row.reported is not None:
        reported, count = describe(row.reported, unit), " × ".join(map(str, row.reported.outcomes.shape))
    if row.minus_bc is not None:
        minus = signed(row.minus_bc, unit)
    chosen = f"{describe_configuration(row.chosen.configuration)}; {row.chosen.snapshot:,} updates"
    return " | ".join([chosen, format_number(row.chosen.score, unit), reported, minus, count])


def known_settings() -> list[str]:
    """Return the settings of the Records, in the order of the study."""
    found = {str(record.results["setting"]) for record in read_records() if "setting" in record.results}
    return [*(name for name in SETTINGS if name in found), *sorted(found - set(SETTINGS))]


def length_table(study: str = "fresh", *, names: list[str] | None = None) -> str:
    """Return success along training, one row per setting and method."""
    lines: list[str] = []
    for setting in known_settings():
        methods = names or [m.name for m in (*TUNED_METHODS.values(), *UNTUNED.values())]
        for method in methods:
            points = training_length(read_records(), study, setting, method)
            if not points:
                continue
            if not lines:
                head = " | ".join(f"{point.snapshot:,}" for point in points)
                lines += [f"| setting | method | {head} |", f"|{'---|' * (2 + len(points))}"]
            cells = " | ".join(describe(point, unit_of(setting)) for point in points)
            lines.append(f"| {setting} | {method} | {cells} |")
    return "\n".join(lines) or f"{NOT_RUN.capitalize()}."


PAIRS = (("DBC (paper)", "BC"), ("DBC (ours)", "BC"), ("DBC (paper), untuned", "BC, untuned"))


def length_difference_table() -> str:
    """Return DBC minus BC at each length, paired by seed and start."""
    lines: list[str] = []
    for setting in known_settings():
        for ours, theirs in PAIRS:
            curves = [training_length(read_records(), "fresh", setting, name) for name in (ours, theirs)]
            if not all(curves):
                continue
            if not lines:
                head = " | ".join(f"{point.snapshot:,}" for point in curves[0])
                lines += [f"| setting | difference | {head} |", f"|{'---|' * (2 + len(curves[0]))}"]
            cells = [signed(difference(*pair), unit_of(setting)) for pair in zip(*curves, strict=True)]
            lines.append(f"| {setting} | {ours} − {theirs} | {' | '.join(cells)} |")
    return "\n".join(lines) or f"{NOT_RUN.capitalize()}."


def signed(value: Difference, unit: str) -> str:
    """Return a difference with its interval."""
    mean, low, high = (format_signed(number, unit) for number in (value.mean, *value.interval))
    return f"{mean} ({low} … {high})"


def controls_table() -> str:
    """Return the controls along training."""
    return length_table("controls", names=list(CONTROLS))


def figures() -> str:
    """Return links to the figures of all settings; `write_figures` draws them."""
    lines: list[str] = []
    for setting in known_settings():
        if (figure := draw_training_length(read_records(), setting)) is not None:
            lines += [f"![{figure.description}](images/{figure.name}.svg)", "", figure.caption, ""]
    return "\n".join(lines).strip() or f"{NOT_RUN.capitalize()}."


def write_figures() -> None:
    """Draw the figures into docs/images."""
    for setting in known_settings():
        if (figure := draw_training_length(read_records(), setting)) is not None:
            (DOCS / "images" / f"{figure.name}.svg").write_bytes(figure.svg_file())


SIMILAR = {"DBC (ours)": "DBC (paper)", "MIP": "BC", "BC-GMM": "BC", "BC": "BC, untuned", "DBC": "DBC (paper)"}
"""The row whose time is used for one that was not run; for a control, that of its first word."""


def missing_table() -> str:
    """Return which parts of the study are done and missing, with measured times."""
    begun = {record.results["method"] for record in read_records() if record.results.get("study") == "tuning"}
    tuned = [m.name for m in TUNED_METHODS.values() if m in SINGLE_ACTIONS.values() or m.name in begun]
    untuned = [m.name for m in UNTUNED.values()]
    lines = [
        "| study | method | done | missing | training, s each | episodes, core-s each | missing, s of training |",
        f"|{'---|' * 7}",
    ]
    for study, name in [
        *(("tuning", name) for name in tuned),
        *(("fresh", name) for name in (*tuned, *untuned)),
        *(("controls", name) for name in CONTROLS),
    ]:
        wanted = CONTROL_SETTINGS if study == "controls" else SETTINGS
        wanted = DISTURBED_SETTINGS if name == DISTURBED else wanted
        done = finished_stages(study, name)
        missing = [setting for setting in wanted if setting not in done]
        similar = SIMILAR.get(name.split(",")[0].split(" without")[0] if study == "controls" else name, "")
        times = training_seconds(done) or training_seconds(
            finished_stages("fresh" if study == "controls" else study, similar)
        )
        estimate = f"about {len(missing) * sum(times) / len(times):.0f}" if times and missing else "–"
        lines.append(
            f"| {study} | {name} | {', '.join(done) or '–'} | {', '.join(missing) or '–'} "
            f"| {describe_span(training_seconds(done))} | {describe_span(episode_seconds(done))} "
            f"| {'not measured' if missing and not times else estimate} |"
        )
    return "\n".join(lines)


def finished_stages(study: str, method: str) -> dict[str, list[Record]]:
    """Return the Records of each setting on which all snapshots of a method are evaluated."""
    found = {setting: study_records(read_records(), study, setting, method) for setting in known_settings()}
    stacks = {m.name: len(m.stacks) for m in TUNED_METHODS.values()} if study == "tuning" else {}
    needed = len(SNAPSHOTS) * stacks.get(method, 1)
    return {setting: records for setting, records in found.items() if len(records) >= needed}


def training_seconds(stages: dict[str, list[Record]]) -> list[float]:
    """Return the time of each training, with its guides unless they were in the cache."""
    return [max(float(record.results["training_seconds"]) for record in records) for records in stages.values()]


def episode_seconds(stages: dict[str, list[Record]]) -> list[float]:
    """Return the time of all episodes of each stage, summed over the processes that ran them."""
    return [sum(record.seconds for record in records) for records in stages.values()]


def describe_span(values: list[float]) -> str:
    """Return the smallest and the largest value."""
    return f"{min(values):.0f} to {max(values):.0f}" if values else NOT_RUN


def picture_caption() -> str:
    """Return the average success of the two policies in docs/images/bc-and-dbc.webp, over seeds and starts."""
    bc, dbc = (
        next(
            value
            for value in training_length(read_records(), "fresh", "fetch-pick-27", UNTUNED[key].name)
            if value.snapshot == PICTURE_UPDATES
        )
        for key in ("bc", "dbc-paper")
    )
    seeds, starts = bc.outcomes.shape
    means = [format_number(value.mean, unit_of("fetch-pick-27")) for value in (bc, dbc)]
    return f"On average over {seeds} seeds and {starts} starts, BC solves {means[0]} % and DBC {means[1]} %."


BLOCKS = {
    "picture": picture_caption,
    "study-tuned": tuned_table,
    "study-length": length_table,
    "study-length-difference": length_difference_table,
    "study-figures": figures,
    "study-controls": controls_table,
    "study-missing": missing_table,
}
"""For docs/make.py."""


def add_records(target: Path, path: Path) -> None:
    """Add a study's Records of a file to those of `target`, those that it has already excepted."""
    known = read_lines(target) if target.exists() else []
    lines = [line for line in read_lines(path) if "study" in line["results"] and not line["quick"]]
    text = "".join(json.dumps(line) + "\n" for line in [*known, *(line for line in lines if line not in known)])
    write_atomically(target, gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        add_records(RECORDS, Path(name))
    write_figures()
