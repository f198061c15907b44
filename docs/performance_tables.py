"""What performance.md shows, made from Records of `diffclone bench` and benchmarks/peers.py.

python docs/performance_tables.py      also draws docs/images/performance.svg
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from benchmarks.speed import tables as bench_tables
from benchmarks.speed.plot import curves, to_svg
from benchmarks.speed.tables import Table, of_kind, three_digits
from benchmarks.speed.training import LESS_PRECISE, SINES
from diffclone.experiments import paper
from diffclone.records import Record
from diffclone.statistics import permutation_p

DOCS = Path(__file__).parent
FILE, IMAGE = DOCS / "records/performance.jsonl", DOCS / "images/performance.svg"
MISSING = "(not measured yet)"
HOLDS = 0.95
"""A rate that falls by less than this leaves is said to hold: two runs differ by as much."""


def measured() -> list[Record]:
    """Complete runs."""
    return [record for record in Record.read_all(FILE) if not record.quick] if FILE.exists() else []


def on(records: Sequence[Record], where: Literal["gpu", "cpu"]) -> list[Record]:
    return [record for record in records if (record.device == "cpu") == (where == "cpu")]


@dataclass(frozen=True)
class Target:
    """Something aimed at, before anything was measured."""

    what: str
    where: Literal["gpu", "cpu"]
    bound: float
    values: Callable[[Sequence[Record]], list[float]]
    """Of every run that measured it, the latest last."""
    unit: str = "×"
    at_most: bool = False

    def row(self, records: Sequence[Record]) -> list[str]:
        """With what came out, and whether that is enough: in all runs, or in some."""
        values, sign = self.values(on(records, self.where)), "≤" if self.at_most else "≥"
        shown = [self.what, {"gpu": "GPU", "cpu": "CPU"}[self.where], f"{sign} {self.bound:g} {self.unit}"]
        if not values:
            return [*shown, "not measured yet", "–"]
        met = sum(value <= self.bound if self.at_most else value >= self.bound for value in values)
        verdict = {0: "missed", len(values): "met"}.get(met, f"met in {met} of {len(values)} runs")
        return [*shown, f"{', '.join(three_digits(value) for value in values)} {self.unit}", verdict]


def to_released(model: str, task: str, members: int, ours: str = "ours") -> Callable[[Sequence[Record]], list[float]]:
    """Member-updates a second, over those of the released style in the same run."""
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
    """The better of BC and DBC over the paper's DBC."""
    printed = paper()["inference"]["dbc"]["mean"]
    players: list[Any] = [record.results["players"] for record in of_kind(records, "rollouts")]
    return [max(found[name]["episodes_per_second"] for name in ("BC", "DBC")) / printed for found in players]


def minutes_in_full(records: Sequence[Record]) -> list[float]:
    """With exact products."""
    full: list[Any] = [record for record in of_kind(records, "full") if record.settings["precision"] == "float32"]
    return [record.results["seconds"] / 60 for record in full]


def growth(records: Sequence[Record]) -> list[float]:
    """Of member-updates a second, the smallest from one size of stack to the next larger."""
    guides = [r for r in bench_tables.sorted_cases(records) if r.settings["case"]["model"] == "guide"]
    rates = [
        r.results["rates"]["ours"]["member_updates_per_second"] for r in guides if r.settings["case"]["task"] == "maze"
    ]
    return [min(b / a for a, b in pairwise(rates))] if len(rates) > 1 else []


def memory_growth(records: Sequence[Record]) -> list[float]:
    """Bytes a further member takes in the largest stack, over a member's share of the next smaller; the worst width."""
    worst: list[float] = []
    for record in of_kind(records, "memory"):
        taken = sorted((int(members), size) for members, size in record.results["bytes"].items())
        (few, small), (many, large) = taken[-2:]
        worst.append((large - small) / (many - few) / (small / few))
    return [max(worst)] if worst else []


def copies(records: Sequence[Record]) -> list[float]:
    """The most memory that a large set takes, over its own size."""
    found: list[Any] = [record.results for record in of_kind(records, "transitions")]
    return [max(each["preparing_bytes"], each["training_bytes"]) / each["data_bytes"] for each in found]


MODEL = "diffusion model"
SIZES = {("maze", 1): (20, 4), ("maze", 24): (350, 6), ("fetch-pick", 1): (15, 3), ("fetch-pick", 8): (70, 3)}
"""Ratios aimed at, on a GPU and on a CPU, for diffusion models of these sizes."""
WAYS = {"": "ours", " by sines": SINES, " by sines, less precise": LESS_PRECISE}
TITLES = {"maze": "Maze", "fetch-pick": "FetchPick"}


def of_models(place: Literal["gpu", "cpu"]) -> list[Target]:
    """A target for each size and way, and those of DBC."""
    found = [
        Target(
            f"{MODEL}{way}, {TITLES[task]}, {members} member{'s' if members > 1 else ''}",
            place,
            bounds[place == "cpu"],
            to_released("guide", task, members, name),
        )
        for (task, members), bounds in SIZES.items()
        for way, name in WAYS.items()
    ]
    bound = {"gpu": 250, "cpu": 5}[place]
    return found + [
        Target(f"DBC{way}, Maze, 24 members", place, bound, to_released("dbc", "maze", 24, name))
        for way, name in {"": "ours", ", less precise": LESS_PRECISE}.items()
    ]


TARGETS = (
    *of_models("gpu"),
    Target("Maze in full", "gpu", 4, minutes_in_full, unit="minutes", at_most=True),
    Target("rate of the next larger stack, Maze", "gpu", HOLDS, growth),
    Target("memory of a further member, large stack to small", "gpu", 1.1, memory_growth, at_most=True),
    Target("memory for ten million transitions, to their size", "gpu", 2, copies, at_most=True),
    *of_models("cpu"),
    Target("episodes of Maze a second, to the paper's DBC", "cpu", 10, episodes_ratio),
    Target("rate of the next larger stack, Maze", "cpu", HOLDS, growth),
)


def targets_table(records: Sequence[Record]) -> Table:
    """All of them."""
    columns = ["what", "where", "aimed at", "measured", ""]
    return Table("Targets", columns, [target.row(records) for target in TARGETS])


def peers_table(records: Sequence[Record]) -> Table:
    """Other packages, beside ours."""
    columns = ["package", "trains", "its updates/s", "ours", "ratio"]
    latest = {r.settings["peer"]: r for r in records if r.settings.get("benchmark") == "peers"}
    rows: list[list[str]] = []
    for name, record in latest.items():
        results: Any = record.results
        trained = {"guide": MODEL, "bc": "BC"}[record.settings["case"]["model"]]
        if "left_out" in results:
            rows.append([name, trained, f"left out: {results['left_out']}", "–", "–"])
            continue
        rates = [three_digits(results["rates"][who]["updates_per_second"]) for who in (name, "ours")]
        rows.append([name, trained, *rates, f"{three_digits(results['ratio'])} ×"])
    return Table("Peers", columns, rows)


def machines(records: Sequence[Record]) -> str:
    """What was measured where."""
    found: dict[str, str] = {}
    for record in records:
        about: Any = record.settings["machine"]
        processor = f"{about['processor']}, {about['cores']} cores, {about['threads']} threads"
        place = processor if record.device == "cpu" else f"{record.device} beside {processor}"
        found[record.device] = f"{place}; torch {record.versions['torch']}"
    return "; ".join(f"{name}: {place}" if name == "cpu" else place for name, place in found.items())


def shown(make: Callable[[Sequence[Record]], Table], records: Sequence[Record] | None = None) -> str:
    """A block of the page."""
    table = make(measured() if records is None else records)
    return table.to_markdown() if table.rows else MISSING


def by_machine(make: Callable[[Sequence[Record]], Table]) -> str:
    """A block with a table a device, or the words that there is none yet."""
    records = measured()
    blocks: list[str] = []
    for device in dict.fromkeys(record.device for record in records):
        here = [record for record in records if record.device == device]
        if (table := make(here)).rows:
            blocks.append(f"{machines(of_benchmark(here))}:\n\n{table.to_markdown()}")
    return "\n\n".join(blocks) or MISSING


def success_table() -> str:
    """Success of DBC whose guide knows its step by tables, and by sines: Records in pairs, tables first."""
    columns = ["task", "settings", "by tables: success, % (95 %)", "seeds × episodes", "by sines"]
    rows: list[list[str]] = []
    records = Record.read_all(DOCS / "records/conditioning.jsonl")
    for pair in zip(records[::2], records[1::2], strict=True):
        results: list[Any] = [record.results for record in pair]
        if [record.settings["guide"]["conditioning"] for record in pair] != ["table", "sinusoidal"]:
            raise ValueError("conditioning.jsonl: a Record of tables and one of sines should take turns.")
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
    """What was timed in several runs: ours, and the released style."""
    found: dict[str, list[Record]] = {}
    for record in on(records, "gpu"):
        if record.settings.get("benchmark") == "training":
            found.setdefault(f"{record.device} {record.settings['case']}", []).append(record)
    rows: list[list[str]] = []
    for some in (some for some in found.values() if len(some) > 1):
        case, names = some[0].settings["case"], ("ours", SINES, LESS_PRECISE, "released")
        rates: list[Any] = [record.results["rates"] for record in some]
        cells = [
            ", ".join(three_digits(each[name]["member_updates_per_second"]) for each in rates if name in each) or "–"
            for name in names
        ]
        rows.append([bench_tables.case_name(case, some[0].settings["width"]), str(case["members"]), *cells])
    return Table("Runs", ["trained", "members", "ours", "by sines", "less precise", "released"], rows)


def of_benchmark(records: Sequence[Record]) -> list[Record]:
    """Those that a table of training is made of come last: their machine is the one to tell."""
    return sorted(records, key=lambda record: record.settings.get("benchmark") == "training")


def latency() -> str:
    """The last run, and the processor it was on."""
    records = [record for record in measured() if record.settings.get("benchmark") == "latency"][-1:]
    told = f"\n\n({records[0].settings['machine']['processor']})" if records else ""
    return shown(bench_tables.latency_table, records) + told


def picture() -> str:
    """The figure, where it was drawn."""
    return f"![Member-updates a second by members](images/{IMAGE.name})" if IMAGE.exists() else MISSING


BLOCKS: dict[str, Callable[[], str]] = {
    "perf-targets": lambda: targets_table(measured()).to_markdown(),
    "perf-plot": picture,
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
    "perf-compiler": lambda: by_machine(bench_tables.compiler_table),
    "perf-full": lambda: shown(bench_tables.full_table),
}


if __name__ == "__main__":
    if drawn := curves(measured()):
        IMAGE.write_text(to_svg(drawn), encoding="utf-8")
