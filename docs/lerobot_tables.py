"""The table of the LeRobot plug-in, made from Records."""

from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from diffclone.records import Record

RECORDS = Path(__file__).parent / "records"


def lerobot_table() -> str:
    """Return the last run of plugins/lerobot_policy_diffclone/examples/compare.py."""
    record = Record.read_all(RECORDS / "lerobot.jsonl")[-1]
    results: Any = record.results
    training = record.settings["method"]["training"]
    lines = ["| trained by | seconds of training | return, mean ± standard error | episodes |", "|---|---|---|---|"]
    for name in ("lerobot-train", "diffclone"):
        returns = results[name]["evaluation"]["returns"]
        spread = stdev(returns) / len(returns) ** 0.5
        lines.append(
            f"| {name} | {results[name]['seconds']:,.0f} | {fmean(returns):.0f} ± {spread:.0f} | {len(returns)} |"
        )
    return "\n".join(
        [
            *lines,
            "",
            f"({record.data['episodes']} demonstrations, {record.data['steps']:,} steps; {training['updates']:,} "
            f"updates of the guide and as many of the policy, batch {training['batch']}; {record.device}; load "
            f"average at the end {results['load_after']:.0f})",
        ]
    )


BLOCKS = {"lerobot": lerobot_table}
