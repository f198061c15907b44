"""Make the table of the external tasks from Records: experts, and BC with few demonstrations."""

from pathlib import Path
from typing import Any

from diffclone.experiments.task_settings import headroom
from diffclone.records import Record
from diffclone.tasks import EXTERNAL
from docs.task_tables import score

RECORDS = Path(__file__).parent / "records"


def external_table() -> str:
    """Return the scores of experts and of BC, and the headroom between them."""
    lines = [
        "| task | expert, evaluation starts (95 %) | steps | starts | BC, 20 demonstrations (95 %) | seeds × starts "
        "| updates | headroom, percent |",
        f"|{'---|' * 8}",
    ]
    records = Record.read_all(RECORDS / "external.jsonl.gz")
    experts = {record.results["task"]: record for record in records if record.kind == "expert"}
    policies = {record.results["task"]: record for record in records if record.kind == "evaluation"}
    for task in EXTERNAL:
        if task.name not in experts:
            lines.append(f"| {task.name} | not run |{' – |' * 6}")
            continue
        expert, bc = experts[task.name].results, "not run | – | – | –"
        if (record := policies.get(task.name)) is not None:
            results, settings = record.results, dict[str, Any](record.settings)
            share = 100 * headroom(expert["success_rate"], results["success_rate"])
            bc = (
                f"{score(task.name, results)} | {results['members']} × {results['episodes']} "
                f"| {settings['training']['updates']:,} | {share:.0f}".replace("-", "−")
            )
        lines.append(
            f"| {task.name} | {score(task.name, expert)} | {expert['mean_length']:.0f} | {expert['episodes']} | {bc} |"
        )
    return "\n".join(lines)


BLOCKS = {"external": external_table}
