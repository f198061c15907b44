"""Tables of what `diffclone bench` measured, for a screen and for a page: a title, columns and rows of text."""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

from benchmarks.speed.breakdown import BETWEEN, KINDS, OTHER
from benchmarks.speed.floor import floor_share
from benchmarks.speed.training import LESS_PRECISE, SINES
from diffclone.experiments import paper
from diffclone.records import Record


@final
class Table(NamedTuple):
    """As it is shown."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def to_markdown(self) -> str:
        """Without the title."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


PRECISIONS = {"float32": "float32", "tf32": "TF32", "bfloat16": "bfloat16"}
"""As they are written."""


def three_digits(number: float) -> str:
    """Those that count, without an exponent."""
    return f"{float(f'{number:.3g}'):,.12g}"


def of_kind(records: Sequence[Record], name: str) -> list[Record]:
    """Records of one benchmark; of what was measured twice on a device, the later."""
    latest: dict[str, Record] = {}
    for record in records:
        if record.kind == "benchmark" and record.settings.get("benchmark") == name:
            known = {key: record.settings.get(key) for key in ("case", "task", "precision")}
            latest[f"{record.device} {known}"] = record
    return list(latest.values())


def case_name(case: Any, width: int) -> str:
    """What is trained, in words."""
    what = {"guide": f"diffusion model, {width} wide", "bc": "BC", "dbc": "DBC"}[case["model"]]
    return f"{what} ({case['task']})"


def sorted_cases(records: Sequence[Record]) -> list[Record]:
    """By model, width, task and members."""
    order = ("guide", "bc", "dbc")

    def key(record: Record) -> Any:
        case = record.settings["case"]
        return order.index(case["model"]), record.settings["width"], case["task"], case["members"]

    return sorted(of_kind(records, "training"), key=key)


def training_table(records: Sequence[Record]) -> Table:
    """Member-updates a second, and how many times the others' that is."""
    columns = ["trained", "members", "ours", "short run", "by sines", "less precise", "vmap", "released"]
    columns += ["to vmap", "to released", "by sines, to released", "less precise, to released", "first s"]
    rows: list[list[str]] = []
    for record in sorted_cases(records):
        case, rates = record.settings["case"], record.results["rates"]

        def rate(name: str, rates: Any = rates) -> str:
            return three_digits(rates[name]["member_updates_per_second"]) if name in rates else "–"

        def ratio(name: str, found: Any = record.results["ratio"]) -> str:
            return f"{three_digits(found[name])} ×" if name in found else "–"

        names = ("ours", "ours, short run", SINES, LESS_PRECISE, "vmap", "released")
        shown = [rate(name) for name in names]
        theirs = [
            f"{three_digits(to_released(record, name))} ×" if name in rates and "released" in rates else "–"
            for name in (SINES, LESS_PRECISE)
        ]
        name = case_name(case, record.settings["width"])
        first = three_digits(rates["ours"]["first_seconds"])
        rows.append([name, str(case["members"]), *shown, ratio("vmap"), ratio("released"), *theirs, first])
    return Table("Member-updates a second", columns, rows)


def to_released(record: Record, name: str) -> float:
    """Member-updates a second of one of ours, over those of the released style."""
    rates: Any = record.results["rates"]
    return rates[name]["member_updates_per_second"] / rates["released"]["member_updates_per_second"]


def floor_table(records: Sequence[Record]) -> Table:
    """How near the machine's limits ours is."""
    columns = ["trained", "members", "GFLOP", "MB", "µs", "at the floor, µs", "share of the floor", "bound by"]
    rows: list[list[str]] = []
    found = {record.device: record.results for record in of_kind(records, "floor")}
    for record in sorted_cases(records):
        case, results, peaks = record.settings["case"], record.results, found.get(record.device)
        for name in ("ours", SINES, LESS_PRECISE):
            less = name == LESS_PRECISE
            counted = results["work"] if name == "ours" else results.get("work_by_sines") or results["work"]
            if peaks is None or counted is None or name not in results["rates"]:
                continue
            precision = results["less_precise"] if less else results["matmul_precision"]
            by_sines = ", by sines" if name != "ours" and case["model"] == "guide" else ""
            words = by_sines + (f", {PRECISIONS[precision]}" if less else "")
            rate = results["rates"][name]["updates_per_second"]
            share = floor_share(counted, peaks, precision, rate)
            rows.append(
                [
                    case_name(case, record.settings["width"]) + words,
                    str(case["members"]),
                    three_digits(counted["flops"] / 1e9),
                    three_digits(counted["traffic"] / 1e6),
                    three_digits(1e6 / rate),
                    three_digits(1e6 / rate * share["share"]),
                    f"{100 * share['share']:.1f} %",
                    share["bound"],
                ]
            )
    return Table("How near the floor", columns, rows)


def peaks_table(records: Sequence[Record]) -> Table:
    """What machines do at best."""
    names = {"flops_float32": "float32", "flops_tf32": "TF32", "flops_bfloat16": "bfloat16"}
    columns = ["machine", *(f"{name}, TFLOP/s" for name in names.values()), "copying, GB/s"]
    rows = [
        [
            record.device,
            *(three_digits(record.results[key] / 1e12) if key in record.results else "–" for key in names),
            three_digits(record.results["bytes"] / 1e9),
        ]
        for record in of_kind(records, "floor")
    ]
    return Table("Peaks of the machine", columns, rows)


def rollouts_table(records: Sequence[Record]) -> Table:
    """Episodes of Maze a second, beside the paper's."""
    printed = paper()["inference"]
    columns = ["policy", "machine", "episodes/s", "at once", "mean length", "the paper", "ratio"]
    rows: list[list[str]] = []
    for record in of_kind(records, "rollouts"):
        for name, found in record.results["players"].items():
            theirs = None if found["printed_as"] is None else printed[found["printed_as"]]["mean"]
            rate = found["episodes_per_second"]
            rows.append(
                [
                    name,
                    record.device,
                    three_digits(rate),
                    str(found["at_once"]),
                    f"{found['mean_length']:.0f}",
                    "–" if theirs is None else f"{theirs:g}",
                    "–" if theirs is None else f"{three_digits(rate / theirs)} ×",
                ]
            )
    return Table("Episodes of Maze a second", columns, rows)


def latency_table(records: Sequence[Record]) -> Table:
    """Milliseconds an action."""
    rows = [
        [name, three_digits(taken), three_digits(record.results["ratio_to_bc"][name])]
        for record in of_kind(records, "latency")[-1:]
        for name, taken in record.results["milliseconds"].items()
    ]
    return Table("Milliseconds an action, one CPU thread", ["method", "ms an action", "times BC"], rows)


def memory_table(records: Sequence[Record]) -> Table:
    """Of a GPU, by members."""
    rows = [
        [f"diffusion model, {record.settings['width']} wide", members, three_digits(taken / 1e6)]
        for record in of_kind(records, "memory")
        for members, taken in record.results["bytes"].items()
    ]
    rows += [
        [f"BC, {record.results['transitions']:,} transitions of {what}", "1", three_digits(record.results[key] / 1e6)]
        for record in of_kind(records, "transitions")
        for what, key in (
            (f"{record.results['data_bytes'] / 1e6:,.0f} MB, preparing", "preparing_bytes"),
            (f"{record.results['data_bytes'] / 1e6:,.0f} MB, training", "training_bytes"),
        )
    ]
    return Table("Memory of the GPU", ["trained", "members", "MB at most"], rows)


def conditioning_table(records: Sequence[Record]) -> Table:
    """Losses with tables and with sines, over members."""
    columns = ["trained", "members", "updates", "by tables: mean (least … most)", "by sines"]
    rows: list[list[str]] = []
    for record in of_kind(records, "conditioning"):
        case, settings = record.settings["case"], record.settings
        shown = [
            f"{sum(found) / len(found):.4f} ({min(found):.4f} … {max(found):.4f})"
            for found in record.results["losses"].values()
        ]
        rows.append([case_name(case, settings["width"]), str(case["members"]), f"{settings['updates']:,}", *shown])
    return Table("Loss of the diffusion model", columns, rows)


def precision_table(records: Sequence[Record]) -> Table:
    """Speed and loss of each."""
    columns = ["trained", "members", "precision", "member-updates/s", "loss after", "loss"]
    rows = [
        [
            case_name(record.settings["case"], record.settings["width"]),
            str(record.settings["case"]["members"]),
            name,
            three_digits(rates["member_updates_per_second"]),
            f"{record.settings['updates']:,}",
            f"{record.results['losses'][name]:.4f}",
        ]
        for record in of_kind(records, "precision")
        for name, rates in record.results["rates"].items()
    ]
    return Table("Precision", columns, rows)


def variants_table(records: Sequence[Record]) -> Table:
    """What DBC's options cost."""
    columns = ["DBC, brief", "machine", "members", "updates/s", "cost, times DBC", "times BC"]
    rows = [
        [
            name,
            record.device,
            str(record.settings["members"]),
            three_digits(rates["updates_per_second"]),
            three_digits(record.results["cost_to_dbc"][name]),
            three_digits(record.results["cost_to_bc"][name]),
        ]
        for record in of_kind(records, "variants")
        for name, rates in record.results["rates"].items()
    ]
    return Table("What options cost", columns, rows)


def compiler_table(records: Sequence[Record]) -> Table:
    """What a compiler would gain on a CPU."""
    columns = ["trained", "members", "updates/s", "compiled", "gain"]
    rows: list[list[str]] = []
    for record in of_kind(records, "compiler"):
        case, rates = record.settings["case"], record.results["rates"]
        shown = [three_digits(rates[name]["updates_per_second"]) for name in ("plain", "compiled")]
        name = case_name(case, record.settings["width"])
        rows.append([name, str(case["members"]), *shown, f"{three_digits(record.results['gain'])} ×"])
    return Table("Compiled on a CPU", columns, rows)


def profile_table(records: Sequence[Record]) -> Table:
    """Where the time of an update goes."""
    kinds = [*KINDS, OTHER, BETWEEN]
    rows: list[list[str]] = []
    for record in of_kind(records, "profile"):
        case = record.settings["case"]
        for precision, found in record.results.items():
            words = ", by sines" if case["model"] == "guide" else ""
            name = f"{case_name(case, record.settings['width'])}{words}, {PRECISIONS[precision]}"
            shares = [f"{100 * found['shares'][kind]:.0f} %" for kind in kinds]
            rows.append([name, str(case["members"]), three_digits(found["microseconds"]), *shares])
    return Table("Where the time goes", ["trained", "members", "µs", *kinds], rows)


def full_table(records: Sequence[Record]) -> Table:
    """Maze from beginning to end."""
    columns = ["machine", "precision", "diffusion model, s", "policies, s", "together, minutes"]
    rows = [
        [
            record.device,
            record.settings["precision"],
            f"{record.results['guide_seconds']:.0f}",
            f"{record.results['policy_seconds']:.0f}",
            f"{record.results['seconds'] / 60:.1f}",
        ]
        for record in of_kind(records, "full")
    ]
    return Table("Maze in full", columns, rows)


TABLES = (
    peaks_table,
    training_table,
    floor_table,
    rollouts_table,
    latency_table,
    memory_table,
    precision_table,
    conditioning_table,
    variants_table,
    compiler_table,
    profile_table,
    full_table,
)
"""Of one machine, in the order in which they are shown."""
