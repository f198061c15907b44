"""The command that runs an experiment of the paper and shows it beside the printed numbers."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from diffclone.commands import find_demonstrations
from diffclone.console import answer, bars, show_table
from diffclone.errors import InvalidSettings
from diffclone.experiments import paper
from diffclone.experiments.multimodality import measure
from diffclone.records import Record
from diffclone.tasks import TASKS

EXPERIMENTS = ("multimodality",)


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper, beside its printed numbers: multimodality."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """The experiment."""
    data: tuple[str, ...] = ()
    """Tasks, for their bundled demonstrations, or files; by default every task whose states are plain numbers."""
    out: Path | None = None
    """A file of Records to append to."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Do it."""
        if self.name not in EXPERIMENTS:
            raise InvalidSettings(f"unknown experiment {self.name!r}; known are {', '.join(EXPERIMENTS)}.")
        records: list[Record] = []
        with bars() as show:
            for data in self.data or plain_tasks():
                task, demos = find_demonstrations(data, None)
                name = task or Path(data).name
                record = measure(
                    demos, name, progress=lambda done, total, name=name: show.update(f"clustering {name}", done, total)
                )
                records.append(record)
                if self.out is not None:
                    record.append_to(self.out)
        if self.json:
            answer([asdict(record) for record in records])
        else:
            show_table("Majority ratio", ["demonstrations", "ratio", "over seeds", "the paper"], rows(records))


def plain_tasks() -> list[str]:
    """Tasks whose observations are not pictures."""
    return [name for name, task in TASKS.items() if not task.pictures]


def rows(records: list[Record]) -> list[list[str]]:
    """As they are shown."""
    shown: list[list[str]] = []
    for record in records:
        results: Any = record.results
        printed = paper()["multimodality"].get(results["task"])
        spread = f"{results['least']:.3f} … {results['most']:.3f}"
        shown.append([results["task"], f"{results['ratio']:.3f}", spread, "–" if printed is None else f"{printed:.3f}"])
    return shown
