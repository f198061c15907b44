"""Tables of the monitoring benchmarks, made from Records."""

from pathlib import Path
from typing import Any

from diffclone.records import Record

RECORDS = Path(__file__).parent / "records"
FILE = "monitors.jsonl.gz"

THRESHOLDS = ("constant", "constant, window 5", "band", "band, window 5")
RULES = ("constant", "window", "band", "band and window", "both", "both, band")


def latest(benchmark: str) -> dict[str, Record]:
    """Return the latest Record of each task."""
    found = [r for r in Record.read_all(RECORDS / FILE) if r.settings.get("benchmark") == benchmark]
    return {str(record.settings.get("task")): record for record in found}


def format_range(cell: Any, digits: int = 2) -> str:
    """Return a mean with its quantiles."""
    if cell is None or cell[0] is None:
        return "–"
    mean, low, high = (f"{x:.{digits}f}" for x in cell)
    return f"{mean} ({low} … {high})"


def lines_of(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join([f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)])


def scores_of(records: dict[str, Record]) -> list[str]:
    """Return the names of all scores, in the order of the first Record that has most of them."""
    tables: list[Any] = [record.results["table"] for record in records.values()]
    return list(max(tables, key=len)) if tables else []


def cell_of(record: Record, score: str, threshold: str, metric: str) -> Any:
    """Return a cell of a Record; None if the score was not measured there."""
    table: Any = record.results["table"]
    return table.get(score, {}).get(threshold, {}).get(metric)


def mean_over_tasks(records: dict[str, Record], score: str, threshold: str, metric: str) -> float | None:
    """Return the mean over all tasks; None if the score was not measured on one of them."""
    cells = [cell_of(record, score, threshold, metric) for record in records.values()]
    if not cells or any(cell is None or cell[0] is None for cell in cells):
        return None
    return sum(cell[0] for cell in cells) / len(cells)


def overview_table() -> str:
    """Return means over tasks for every score and threshold."""
    records, rows = latest("monitors"), list[list[str]]()
    for score in scores_of(records):
        for threshold in THRESHOLDS:
            found = [
                mean_over_tasks(records, score, threshold, metric)
                for metric in ("auroc", "balanced", "false_alarms", "detected", "time")
            ]
            if found[0] is None:
                continue
            balanced = [
                format_range(cell_of(record, score, threshold, "balanced")).split(" ")[0] for record in records.values()
            ]
            rows.append([score, threshold, *("–" if x is None else f"{x:.2f}" for x in found), *balanced])
    heads = ["score", "threshold", "AUROC", "balanced accuracy", "false alarms", "detected", "time"]
    return lines_of([*heads, *(f"balanced, {name}" for name in records)], rows)


def task_table(record: Record) -> str:
    """Return the table of one task, with quantiles, for the constant threshold and the band with a window."""
    settings: Any = record.settings
    success: Any = record.results["success"]
    rates = "; ".join(f"{level}: {', '.join(f'{x:.2f}' for x in seeds)}" for level, seeds in success.items())
    noise = " and ".join(name.replace("_", " ") for name in settings["noise"])
    title = (
        f"{settings['task']}, {settings['episodes']} episodes per seed and level, at most {settings['horizon']} steps; "
        f"success by {noise} and seed {rates}:"
    )
    rows = [
        [score, threshold, *(format_range(cells[metric]) for metric in ("auroc", "balanced", "false_alarms", "time"))]
        for score, by_threshold in dict(record.results["table"]).items()
        for threshold, cells in by_threshold.items()
        if threshold in ("constant", "band, window 5")
    ]
    heads = ["score", "threshold", "AUROC", "balanced accuracy", "false alarms", "time"]
    return f"{title}\n\n{lines_of(heads, rows)}"


def task_tables() -> str:
    """Return the tables of all tasks."""
    return "\n\n".join(task_table(record) for record in latest("monitors").values())


def speed_table() -> str:
    """Return µs per pair of each score."""
    records = latest("monitors")
    rows: list[list[str]] = []
    for score in ("nearest", "guide", "rnd", "logpzo", "logpzo, 5 steps", "disagreement"):
        cells: list[str] = []
        for record in records.values():
            found: Any = record.results["microseconds"]
            cells.append(f"{found[score]['batch']:.0f}, {found[score]['single']:.0f}" if score in found else "–")
        rows.append([score, *cells])
    return lines_of(["score", *records], rows)


def calibration_table() -> str:
    """Return the rates of false alarms over many calibrations."""
    [record] = latest("monitor-calibrations").values()
    rates: Any = record.results["rates"]
    rows = [[name, *(f"{by_rule[rule][0]:.3f}" for rule in RULES)] for name, by_rule in rates.items()]
    return lines_of(["scores", *RULES], rows)


BLOCKS = {
    "monitor": overview_table,
    "monitor-tasks": task_tables,
    "monitor-speed": speed_table,
    "monitor-calibrations": calibration_table,
}
