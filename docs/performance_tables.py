"""Tables of performance.md, made from Records of benchmarks.speed and benchmarks.peers.

python -m docs.performance_tables      draws docs/images/performance.svg as well
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from benchmarks.speed import tables as bench_tables
from benchmarks.speed.cases import FAST, SINUSOIDAL
from benchmarks.speed.plot import curves, to_svg
from benchmarks.speed.tables import Table, latest_records, round_to_3_digits
from diffclone.experiments import paper
from diffclone.records import Record
from diffclone.statistics import permutation_p

DOCS = Path(__file__).parent
FILE, IMAGE = DOCS / "records/performance.jsonl.gz", DOCS / "images/performance.svg"
MISSING = "(not measured yet)"
HOLDS = 0.95
"""A rate that keeps at least this share counts as constant: two runs differ by as much."""


def measured() -> list[Record]:
    """Return the Records of complete runs."""
    return [record for record in Record.read_all(FILE) if not record.quick] if FILE.exists() else []


def on(records: Sequence[Record], where: Literal["gpu", "cpu"]) -> list[Record]:
    return [record for record in records if (record.device == "cpu") == (where == "cpu")]


@dataclass(frozen=True)
class Target:
    """A target set before anything was measured."""

    what: str
    where: Literal["gpu", "cpu"]
    bound: float
    values: Callable[[Sequence[Record]], list[float]]
    """The value of every run that measured it, the latest last."""
    unit: str = "×"
    at_most: bool = False

    def row(self, records: Sequence[Record]) -> list[str]:
        """Return the target, the measured values and whether it is met, in all runs or in some."""
        values, sign = self.values(on(records, self.where)), "≤" if self.at_most else "≥"
        shown = [self.what, {"gpu": "GPU", "cpu": "CPU"}[self.where], f"{sign} {self.bound:g} {self.unit}"]
        if not values:
            return [*shown, "not measured yet", "–"]
        met = sum(value <= self.bound if self.at_most else value >= self.bound for value in values)
        verdict = {0: "missed", len(values): "met"}.get(met, f"met in {met} of {len(values)} runs")
        return [*shown, f"{', '.join(round_to_3_digits(value) for value in values)} {self.unit}", verdict]


def to_released(model: str, task: str, members: int, ours: str = "ours") -> Callable[[Sequence[Record]], list[float]]:
    """Return ratios of member-updates per second to the released style in the same run."""
    wanted = {"model": model, "task": task, "members": members}

    def values(records: Sequence[Record]) -> list[float]:
        return [
            bench_tables.to_released(record, ours)
            for record in records
            if record.settings.get("benchmark") == "training"
            and record.settings["case"] == wanted
            and {ours, "released"} <= record.results["rates"].keys()
        ]

    return values


def episodes_ratio(records: Sequence[Record]) -> list[float]:
    """Return the better of BC and DBC over the paper's DBC."""
    printed = paper()["inference"]["dbc"]["mean"]
    players: list[Any] = [record.results["players"] for record in latest_records(records, "rollouts")]
    return [max(found[name]["episodes_per_second"] for name in ("BC", "DBC")) / printed for found in players]


def minutes_in_full(records: Sequence[Record]) -> list[float]:
    """Return the minutes of Maze at full length in float32."""
    full: list[Any] = [
        record for record in latest_records(records, "full") if record.settings["precision"] == "float32"
    ]
    return [record.results["seconds"] / 60 for record in full]


def growth(records: Sequence[Record]) -> list[float]:
    """Return the smallest ratio of member-updates per second from one stack size to the next larger one."""
    guides = [r for r in bench_tables.sorted_cases(records) if r.settings["case"]["model"] == "guide"]
    rates = [
        r.results["rates"]["ours"]["member_updates_per_second"] for r in guides if r.settings["case"]["task"] == "maze"
    ]
    return [min(b / a for a, b in pairwise(rates))] if len(rates) > 1 else []


def memory_growth(records: Sequence[Record]) -> list[float]:
    """Return the memory of an additional member in the largest stack over that in the next smaller; the worst width."""
    worst: list[float] = []
    for record in latest_records(records, "memory"):
        taken = sorted((int(members), size) for members, size in record.results["bytes"].items())
        (few, small), (many, large) = taken[-2:]
        worst.append((large - small) / (many - few) / (small / few))
    return [max(worst)] if worst else []


def copies(records: Sequence[Record]) -> list[float]:
    """Return the peak memory for a large data set over the size of the data."""
    found: list[Any] = [record.results for record in latest_records(records, "transitions")]
    return [max(each["preparing_bytes"], each["training_bytes"]) / each["data_bytes"] for each in found]


MODEL = "diffusion model"
SIZES = {("maze", 1): (20, 4), ("maze", 24): (350, 6), ("fetch-pick", 1): (15, 3), ("fetch-pick", 8): (70, 3)}
"""Target ratios on a GPU and on a CPU for diffusion models of these sizes."""
VARIANTS = {"": "ours", ", sinusoidal": SINUSOIDAL, ", sinusoidal, fast": FAST}
TITLES = {"maze": "Maze", "fetch-pick": "FetchPick"}


def of_models(place: Literal["gpu", "cpu"]) -> list[Target]:
    """Return a target per size and variant, and those of DBC."""
    found = [
        Target(
            f"{MODEL}{variant}, {TITLES[task]}, {members} member{'s' if members > 1 else ''}",
            place,
            bounds[place == "cpu"],
            to_released("guide", task, members, name),
        )
        for (task, members), bounds in SIZES.items()
        for variant, name in VARIANTS.items()
    ]
    bound = {"gpu": 250, "cpu": 5}[place]
    return found + [
        Target(f"DBC{variant}, Maze, 24 members", place, bound, to_released("dbc", "maze", 24, name))
        for variant, name in {"": "ours", ", fast": FAST}.items()
    ]


TARGETS = (
    *of_models("gpu"),
    Target("Maze in full", "gpu", 4, minutes_in_full, unit="minutes", at_most=True),
    Target("rate of the next larger stack, Maze", "gpu", HOLDS, growth),
    Target("memory of an additional member, large stack to small", "gpu", 1.1, memory_growth, at_most=True),
    Target("memory for ten million transitions, to their size", "gpu", 2, copies, at_most=True),
    *of_models("cpu"),
    Target("episodes of Maze per second, to the paper's DBC", "cpu", 10, episodes_ratio),
    Target("rate of the next larger stack, Maze", "cpu", HOLDS, growth),
)


def targets_table(records: Sequence[Record]) -> Table:
    """Return the table of all targets."""
    columns = ["what", "where", "target", "measured", ""]
    return Table("Targets", columns, [target.row(records) for target in TARGETS])


def peers_table(records: Sequence[Record]) -> Table:
    """Return the table of other packages beside ours."""
    columns = ["package", "trains", "its updates/s", "ours", "ratio"]
    latest = {r.settings["peer"]: r for r in records if r.settings.get("benchmark") == "peers"}
    rows: list[list[str]] = []
    for name, record in latest.items():
        results: Any = record.results
        trained = {"guide": MODEL, "bc": "BC"}[record.settings["case"]["model"]]
        if "left_out" in results:
            rows.append([name, trained, f"skipped: {results['left_out']}", "–", "–"])
            continue
        rates = [round_to_3_digits(results["rates"][who]["updates_per_second"]) for who in (name, "ours")]
        members = record.settings["case"]["members"]
        trained = trained if members == 1 else f"{trained}, {members} members"
        if results.get("clock") == "cpu":
            load: Any = record.settings["machine"]["load_before"]
            trained = f"{trained}; one core, CPU time, load average {load:.0f}"
        rows.append([name, trained, *rates, f"{round_to_3_digits(results['ratio'])} ×"])
    return Table("Peers", columns, rows)


def machines(records: Sequence[Record]) -> str:
    """Describe the machines."""
    found: dict[str, str] = {}
    for record in records:
        about: Any = record.settings["machine"]
        processor = f"{about['processor']}, {about['cores']} cores, {about['threads']} threads"
        place = processor if record.device == "cpu" else f"{record.device} beside {processor}"
        found[record.device] = f"{place}; torch {record.versions['torch']}"
    return "; ".join(f"{name}: {place}" if name == "cpu" else place for name, place in found.items())


def shown(make: Callable[[Sequence[Record]], Table], records: Sequence[Record] | None = None) -> str:
    """Return a table of the page."""
    table = make(measured() if records is None else records)
    return table.to_markdown() if table.rows else MISSING


def by_machine(make: Callable[[Sequence[Record]], Table]) -> str:
    """Return one table per device."""
    records = measured()
    blocks: list[str] = []
    for device in dict.fromkeys(record.device for record in records):
        here = [record for record in records if record.device == device]
        if (table := make(here)).rows:
            blocks.append(f"{machines(of_benchmark(here))}:\n\n{table.to_markdown()}")
    return "\n\n".join(blocks) or MISSING


def success_table() -> str:
    """Compare success of DBC with learned tables and with a sinusoidal embedding: Records in pairs, tables first."""
    columns = ["task", "settings", "tables: success, % (95 %)", "seeds × episodes", "sinusoidal"]
    rows: list[list[str]] = []
    records = Record.read_all(DOCS / "records/conditioning.jsonl")
    for pair in zip(records[::2], records[1::2], strict=True):
        results: list[Any] = [record.results for record in pair]
        if [record.settings["guide"]["conditioning"] for record in pair] != ["table", "sinusoidal"]:
            raise ValueError("conditioning.jsonl: Records of tables and of the sinusoidal embedding must alternate.")
        cells: list[str] = []
        for found in results:
            low, high = (100 * edge for edge in found["success_interval"])
            cells.append(f"{100 * found['success_rate']:.1f} ({low:.1f} … {high:.1f})")
            cells.append(f"{found['members']} × {found['episodes']}")
        p = permutation_p(results[0]["member_success"], results[1]["member_success"])
        preset = "best" if pair[0].settings["away"] else "brief"
        rows.append([results[0]["task"], f"`{preset}`, λ = {pair[0].settings['coefficient']:g}", *cells, f"{p:.2f}"])
    return Table("Success", [*columns, "seeds × episodes", "p"], rows).to_markdown()


def runs_table(records: Sequence[Record]) -> Table:
    """Return the rates of cases that were timed in several runs."""
    found: dict[str, list[Record]] = {}
    for record in on(records, "gpu"):
        if record.settings.get("benchmark") == "training":
            found.setdefault(f"{record.device} {record.settings['case']}", []).append(record)
    rows: list[list[str]] = []
    for some in (some for some in found.values() if len(some) > 1):
        case, names = some[0].settings["case"], ("ours", SINUSOIDAL, FAST, "released")
        rates: list[Any] = [record.results["rates"] for record in some]
        cells = [
            ", ".join(round_to_3_digits(each[name]["member_updates_per_second"]) for each in rates if name in each)
            or "–"
            for name in names
        ]
        rows.append([bench_tables.case_name(case, some[0].settings["width"]), str(case["members"]), *cells])
    return Table("Runs", ["trained", "members", "ours", "sinusoidal", "fast", "released"], rows)


def of_benchmark(records: Sequence[Record]) -> list[Record]:
    """Sort the Records of training last: the page describes their machine."""
    return sorted(records, key=lambda record: record.settings.get("benchmark") == "training")


def latency() -> str:
    """Return the table of the last run and its processor."""
    records = [record for record in measured() if record.settings.get("benchmark") == "latency"][-1:]
    processor = f"\n\n({records[0].settings['machine']['processor']})" if records else ""
    return shown(bench_tables.latency_table, records) + processor


def figure() -> str:
    """Return the figure, if it was drawn."""
    return f"![Member-updates per second by members](images/{IMAGE.name})" if IMAGE.exists() else MISSING


BLOCKS: dict[str, Callable[[], str]] = {
    "perf-targets": lambda: targets_table(measured()).to_markdown(),
    "perf-plot": figure,
    "perf-training": lambda: by_machine(bench_tables.training_table),
    "perf-runs": lambda: shown(runs_table),
    "perf-profile": lambda: by_machine(bench_tables.profile_table),
    "perf-peaks": lambda: shown(bench_tables.peaks_table),
    "perf-floor": lambda: by_machine(bench_tables.floor_table),
    "perf-peers": lambda: shown(peers_table),
    "perf-rollouts": lambda: shown(bench_tables.rollouts_table),
    "perf-latency": latency,
    "perf-conditioning": lambda: by_machine(bench_tables.conditioning_table),
    "perf-success": success_table,
    "perf-precision": lambda: by_machine(bench_tables.precision_table),
    "perf-memory": lambda: shown(bench_tables.memory_table),
    "perf-variants": lambda: shown(bench_tables.variants_table),
    "perf-full": lambda: shown(bench_tables.full_table),
}


if __name__ == "__main__":
    if drawn := curves(measured()):
        IMAGE.write_text(to_svg(drawn), encoding="utf-8")
