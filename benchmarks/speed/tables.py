"""Tables of the measurements, for a terminal and for a page: a title, columns and rows of text."""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

from benchmarks.speed.cases import FAST, SINUSOIDAL
from benchmarks.speed.profiling import BETWEEN, KINDS, OTHER
from benchmarks.speed.roofline import roofline_share
from diffclone.experiments import paper
from diffclone.records import Record


@final
class Table(NamedTuple):
    """A table as text."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def to_markdown(self) -> str:
        """Return the table in Markdown, without the title."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


PRECISIONS = {"float32": "float32", "tf32": "TF32", "bfloat16": "bfloat16"}
"""Names of precisions as shown."""


def round_to_3_digits(number: float) -> str:
    """Format a number with three significant digits and no exponent."""
    return f"{float(f'{number:.3g}'):,.12g}"


def latest_records(records: Sequence[Record], name: str) -> list[Record]:
    """Return the Records of one benchmark; the latest of repeated measurements on a device."""
    latest: dict[str, Record] = {}
    for record in records:
        if record.kind == "benchmark" and record.settings.get("benchmark") == name:
            known = {key: record.settings.get(key) for key in ("case", "task", "precision")}
            latest[f"{record.device} {known}"] = record
    return list(latest.values())


def case_name(case: Any, width: int) -> str:
    """Return the name of a case."""
    what = {"guide": f"diffusion model, {width} wide", "bc": "BC", "dbc": "DBC"}[case["model"]]
    return f"{what} ({case['task']})"


def sorted_cases(records: Sequence[Record]) -> list[Record]:
    """Return the Records of training, sorted by model, width, task and members."""
    order = ("guide", "bc", "dbc")

    def key(record: Record) -> Any:
        case = record.settings["case"]
        return order.index(case["model"]), record.settings["width"], case["task"], case["members"]

    return sorted(latest_records(records, "training"), key=key)


def training_table(records: Sequence[Record]) -> Table:
    """Member-updates per second, and ratios to other ways to train."""
    columns = ["trained", "members", "ours", "short run", "sinusoidal", "fast", "vmap", "released"]
    columns += ["to vmap", "to released", "sinusoidal, to released", "fast, to released", "first s"]
    rows: list[list[str]] = []
    for record in sorted_cases(records):
        case, rates = record.settings["case"], record.results["rates"]

        def rate(name: str, rates: Any = rates) -> str:
            return round_to_3_digits(rates[name]["member_updates_per_second"]) if name in rates else "–"

        def ratio(name: str, found: Any = record.results["ratio"]) -> str:
            return f"{round_to_3_digits(found[name])} ×" if name in found else "–"

        names = ("ours", "ours, short run", SINUSOIDAL, FAST, "vmap", "released")
        shown = [rate(name) for name in names]
        theirs = [
            f"{round_to_3_digits(to_released(record, name))} ×" if name in rates and "released" in rates else "–"
            for name in (SINUSOIDAL, FAST)
        ]
        name = case_name(case, record.settings["width"])
        first = round_to_3_digits(rates["ours"]["first_seconds"])
        rows.append([name, str(case["members"]), *shown, ratio("vmap"), ratio("released"), *theirs, first])
    return Table("Member-updates per second", columns, rows)


def to_released(record: Record, name: str) -> float:
    """Return the ratio of member-updates per second to the released style."""
    rates: Any = record.results["rates"]
    return rates[name]["member_updates_per_second"] / rates["released"]["member_updates_per_second"]


def floor_table(records: Sequence[Record]) -> Table:
    """Our rates beside the roofline of the machine."""
    columns = ["trained", "members", "GFLOP", "MB", "µs", "lower bound, µs", "share of the bound", "limited by"]
    rows: list[list[str]] = []
    found = {record.device: record.results for record in latest_records(records, "floor")}
    for record in sorted_cases(records):
        case, results, peaks = record.settings["case"], record.results, found.get(record.device)
        for name in ("ours", SINUSOIDAL, FAST):
            fast = name == FAST
            counted = results["work"] if name == "ours" else results.get("work_by_sines") or results["work"]
            if peaks is None or counted is None or name not in results["rates"]:
                continue
            precision = results["less_precise"] if fast else results["matmul_precision"]
            with_sinusoidal_embedding = ", sinusoidal" if name != "ours" and case["model"] == "guide" else ""
            words = with_sinusoidal_embedding + (f", {PRECISIONS[precision]}" if fast else "")
            rate = results["rates"][name]["updates_per_second"]
            share = roofline_share(counted, peaks, precision, rate)
            rows.append(
                [
                    case_name(case, record.settings["width"]) + words,
                    str(case["members"]),
                    round_to_3_digits(counted["flops"] / 1e9),
                    round_to_3_digits(counted["traffic"] / 1e6),
                    round_to_3_digits(1e6 / rate),
                    round_to_3_digits(1e6 / rate * share["share"]),
                    f"{100 * share['share']:.1f} %",
                    share["bound"],
                ]
            )
    return Table("Roofline", columns, rows)


def peaks_table(records: Sequence[Record]) -> Table:
    """Peak rates of the machines."""
    names = {"flops_float32": "float32", "flops_tf32": "TF32", "flops_bfloat16": "bfloat16"}
    columns = ["machine", *(f"{name}, TFLOP/s" for name in names.values()), "copy, GB/s"]
    rows = [
        [
            record.device,
            *(round_to_3_digits(record.results[key] / 1e12) if key in record.results else "–" for key in names),
            round_to_3_digits(record.results["bytes"] / 1e9),
        ]
        for record in latest_records(records, "floor")
    ]
    return Table("Peaks of the machine", columns, rows)


def rollouts_table(records: Sequence[Record]) -> Table:
    """Episodes of Maze per second, beside the paper's."""
    printed = paper()["inference"]
    columns = ["policy", "machine", "episodes/s", "in parallel", "mean length", "the paper", "ratio"]
    rows: list[list[str]] = []
    for record in latest_records(records, "rollouts"):
        for name, found in record.results["players"].items():
            theirs = None if found["printed_as"] is None else printed[found["printed_as"]]["mean"]
            rate = found["episodes_per_second"]
            rows.append(
                [
                    name,
                    record.device,
                    round_to_3_digits(rate),
                    str(found["at_once"]),
                    f"{found['mean_length']:.0f}",
                    "–" if theirs is None else f"{theirs:g}",
                    "–" if theirs is None else f"{round_to_3_digits(rate / theirs)} ×",
                ]
            )
    return Table("Episodes of Maze per second", columns, rows)


def latency_table(records: Sequence[Record]) -> Table:
    """Milliseconds per action."""
    rows = [
        [name, round_to_3_digits(taken), round_to_3_digits(record.results["ratio_to_bc"][name])]
        for record in latest_records(records, "latency")[-1:]
        for name, taken in record.results["milliseconds"].items()
    ]
    return Table("Milliseconds per action, one CPU thread", ["method", "ms per action", "times BC"], rows)


def memory_table(records: Sequence[Record]) -> Table:
    """GPU memory by members."""
    rows = [
        [f"diffusion model, {record.settings['width']} wide", members, round_to_3_digits(taken / 1e6)]
        for record in latest_records(records, "memory")
        for members, taken in record.results["bytes"].items()
    ]
    rows += [
        [f"BC, {found['transitions']:,} transitions of {what}", "1", round_to_3_digits(found[key] / 1e6)]
        for found in (record.results for record in latest_records(records, "transitions"))
        for what, key in (
            (f"{found['data_bytes'] / 1e6:,.0f} MB, preparing", "preparing_bytes"),
            (f"{found['data_bytes'] / 1e6:,.0f} MB, training", "training_bytes"),
        )
    ]
    return Table("GPU memory", ["trained", "members", "peak MB"], rows)


def conditioning_table(records: Sequence[Record]) -> Table:
    """Losses with learned tables and with a sinusoidal embedding, over members."""
    columns = ["trained", "members", "updates", "tables: mean (min … max)", "sinusoidal"]
    rows: list[list[str]] = []
    for record in latest_records(records, "conditioning"):
        case, settings = record.settings["case"], record.settings
        shown = [
            f"{sum(found) / len(found):.4f} ({min(found):.4f} … {max(found):.4f})"
            for found in record.results["losses"].values()
        ]
        rows.append([case_name(case, settings["width"]), str(case["members"]), f"{settings['updates']:,}", *shown])
    return Table("Loss of the diffusion model", columns, rows)


def precision_table(records: Sequence[Record]) -> Table:
    """Speed and loss of each precision."""
    columns = ["trained", "members", "precision", "member-updates/s", "loss after", "loss"]
    rows = [
        [
            case_name(record.settings["case"], record.settings["width"]),
            str(record.settings["case"]["members"]),
            name,
            round_to_3_digits(rates["member_updates_per_second"]),
            f"{record.settings['updates']:,}",
            f"{record.results['losses'][name]:.4f}",
        ]
        for record in latest_records(records, "precision")
        for name, rates in record.results["rates"].items()
    ]
    return Table("Precision", columns, rows)


def variants_table(records: Sequence[Record]) -> Table:
    """Cost of DBC's options."""
    columns = ["DBC, brief", "machine", "members", "updates/s", "cost, times DBC", "times BC"]
    rows = [
        [
            name,
            record.device,
            str(record.settings["members"]),
            round_to_3_digits(rates["updates_per_second"]),
            round_to_3_digits(record.results["cost_to_dbc"][name]),
            round_to_3_digits(record.results["cost_to_bc"][name]),
        ]
        for record in latest_records(records, "variants")
        for name, rates in record.results["rates"].items()
    ]
    return Table("Cost of options", columns, rows)


def profile_table(records: Sequence[Record]) -> Table:
    """Breakdown of the time of an update."""
    kinds = [*KINDS, OTHER, BETWEEN]
    rows: list[list[str]] = []
    for record in latest_records(records, "profile"):
        case = record.settings["case"]
        for precision, found in record.results.items():
            words = ", sinusoidal" if case["model"] == "guide" else ""
            name = f"{case_name(case, record.settings['width'])}{words}, {PRECISIONS[precision]}"
            shares = [f"{100 * found['shares'][kind]:.0f} %" for kind in kinds]
            rows.append([name, str(case["members"]), round_to_3_digits(found["microseconds"]), *shares])
    return Table("Breakdown of an update", ["trained", "members", "µs", *kinds], rows)


def full_table(records: Sequence[Record]) -> Table:
    """The released Maze training at full length."""
    columns = ["machine", "precision", "diffusion model, s", "policies, s", "together, minutes"]
    rows = [
        [
            record.device,
            record.settings["precision"],
            f"{record.results['guide_seconds']:.0f}",
            f"{record.results['policy_seconds']:.0f}",
            f"{record.results['seconds'] / 60:.1f}",
        ]
        for record in latest_records(records, "full")
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
    profile_table,
    full_table,
)
"""All tables in the order in which they are printed."""
