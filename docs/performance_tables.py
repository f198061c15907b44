"""What performance.md shows, made from Records of `diffclone bench` and benchmarks/peers.py.

python docs/performance_tables.py      also draws docs/images/performance.svg
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from diffclone.bench import tables as bench_tables
from diffclone.bench.plot import curves, to_svg
from diffclone.bench.tables import Table, of_kind, three_digits
from diffclone.bench.training import LESS_PRECISE, SINES
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
    value: Callable[[Sequence[Record]], float | None]
    unit: str = "×"
    at_most: bool = False

    def row(self, records: Sequence[Record]) -> list[str]:
        """With what came out, and whether that is enough."""
        value, sign = self.value(on(records, self.where)), "≤" if self.at_most else "≥"
        shown = [self.what, {"gpu": "GPU", "cpu": "CPU"}[self.where], f"{sign} {self.bound:g} {self.unit}"]
        if value is None:
            return [*shown, "not measured yet", "–"]
        met = value <= self.bound if self.at_most else value >= self.bound
        return [*shown, f"{three_digits(value)} {self.unit}", "met" if met else "missed"]


def case_of(records: Sequence[Record], model: str, task: str, members: int) -> Any:
    wanted = {"model": model, "task": task, "members": members}
    return next((r for r in of_kind(records, "training") if r.settings["case"] == wanted), None)


def to_released(model: str, task: str, members: int, ours: str = "ours") -> Callable[[Sequence[Record]], float | None]:
    """Member-updates a second, over those of the released style."""

    def value(records: Sequence[Record]) -> float | None:
        record = case_of(records, model, task, members)
        if record is None or not {ours, "released"} <= record.results["rates"].keys():
            return None
        return bench_tables.to_released(record, ours)

    return value


def episodes_ratio(records: Sequence[Record]) -> float | None:
    """The better of BC and DBC over the paper's DBC."""
    for record in of_kind(records, "rollouts"):
        players = record.results["players"]
        best = max(players[name]["episodes_per_second"] for name in ("BC", "DBC"))
        return best / paper()["inference"]["dbc"]["mean"]
    return None


def minutes_in_full(records: Sequence[Record]) -> float | None:
    """With exact products."""
    full = [record for record in of_kind(records, "full") if record.settings.get("precision", "float32") == "float32"]
    return next((record.results["seconds"] / 60 for record in full), None)


def growth(records: Sequence[Record]) -> float | None:
    """Of member-updates a second, the smallest from one size of stack to the next larger."""
    guides = [r for r in bench_tables.sorted_cases(records) if r.settings["case"]["model"] == "guide"]
    rates = [
        r.results["rates"]["ours"]["member_updates_per_second"] for r in guides if r.settings["case"]["task"] == "maze"
    ]
    return min((b / a for a, b in pairwise(rates)), default=None)


def memory_growth(records: Sequence[Record]) -> float | None:
    """Bytes a further member takes in a large stack, over those it takes in a small one; the worst of the widths."""
    worst: list[float] = []
    for record in of_kind(records, "memory"):
        taken = sorted((int(members), size) for members, size in record.results["bytes"].items())
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(taken)]
        worst.append(slopes[-1] / slopes[0])
    return max(worst, default=None)


def copies(records: Sequence[Record]) -> float | None:
    """The most memory that a large set takes, over its own size."""
    for record in of_kind(records, "transitions"):
        results: Any = record.results
        return max(results["preparing_bytes"], results["training_bytes"]) / results["data_bytes"]
    return None


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
    """Success of DBC whose guide knows its step by tables, and by sines."""
    lines = ["| task | guide | success, % (95 %) | seeds × episodes | p of the two |", "|---|---|---|---|---|"]
    records = Record.read_all(DOCS / "records/conditioning.jsonl")
    rates: dict[str, list[list[float]]] = {}
    for record in records:
        rates.setdefault(record.results["task"], []).append(record.results["member_success"])
    for record in records:
        results: Any = record.results
        p = permutation_p(*rates[results["task"]])
        low, high = (100 * edge for edge in results["success_interval"])
        how = {"table": "tables", "sinusoidal": "sines"}[record.settings["guide"]["conditioning"]]
        rate = f"{100 * results['success_rate']:.1f} ({low:.1f} … {high:.1f})"
        lines.append(f"| {results['task']} | {how} | {rate} | {results['members']} × {results['episodes']} | {p:.2f} |")
    return "\n".join(lines)


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
