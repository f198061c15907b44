"""The `report` command."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import tyro

from diffclone.cli.console import print_message
from diffclone.cli.reproduce import parse_files
from diffclone.errors import InvalidFile, InvalidSettings, MissingPackage, install_command
from diffclone.experiments import EXPERIMENTS
from diffclone.experiments.claims_table import decide_claims
from diffclone.experiments.compare import compare_experiments
from diffclone.experiments.specification import SettingsSource
from diffclone.files import create_path, refuse_existing
from diffclone.records import Record
from diffclone.reports.videos import MEDIA_TYPES, Video
from diffclone.tasks import TASKS

MAX_VIDEO_BYTES = 3_000_000
"""Largest size of a video, since the page contains all videos."""


@dataclass(frozen=True)
class Report:
    """Write the paper's claims with their verdicts, then its experiments beside the printed numbers, as one page."""

    records: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE…")] = (Path("reproduction/records.jsonl"),)
    """Files of Records, written by `diffclone reproduce`."""
    out: Path = Path("report")
    """Folder to create: index.html, tables/ (Markdown and LaTeX), figures/ (SVG and PDF)."""
    source: SettingsSource = "ours"
    """Settings to report: ours, the paper's, or the released code's."""
    data: tuple[str, ...] = ()
    """Demonstrations that `reproduce` used instead of the bundled ones, as TASK=FILE."""
    videos: Path | None = None
    """Folder of rollouts to show, named after their tasks: maze.mp4, walker.gif, … (see `diffclone render`)."""

    def run(self) -> None:
        """Write the folder."""
        refuse_existing(self.out)
        if find_spec("matplotlib") is None:
            raise MissingPackage(f"a report needs the package matplotlib. Try: {install_command('report')}.")
        from diffclone.reports.report import build_report
        from diffclone.reports.training_length import draw_training_lengths

        videos = [] if self.videos is None else read_videos(self.videos)
        records = [record for path in self.records for record in Record.read_all(path)]
        files = parse_files(self.data)
        tables = compare_experiments(list(EXPERIMENTS.values()), records, self.source, files)
        claims, lengths = decide_claims(records, files=files), draw_training_lengths(records)
        write_all(self.out, build_report(tables, claims, videos=videos, lengths=lengths))
        print_message(f"wrote {self.out / 'index.html'}")


def write_all(folder: Path, files: dict[str, bytes]) -> None:
    """Write a folder of files, all of them or none."""
    with create_path(folder) as temporary:
        for name, content in files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def read_videos(folder: Path) -> list[Video]:
    """Return the videos in a folder, in the order of the tasks."""
    if not folder.is_dir():
        raise InvalidFile(f"no such folder: {folder}.")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.removeprefix(".") not in MEDIA_TYPES:
            continue
        if path.stem not in TASKS:
            raise InvalidSettings(f"{path} is not named after a task; tasks are {', '.join(TASKS)}.")
        if path.stem in found:
            raise InvalidSettings(f"{found[path.stem]} and {path} show the same task. Remove one of them.")
        if path.stat().st_size > MAX_VIDEO_BYTES:
            raise InvalidSettings(
                f"{path} has {path.stat().st_size / 1e6:.1f} MB; the page holds videos of up to "
                f"{MAX_VIDEO_BYTES / 1e6:.0f} MB. Make it shorter or smaller."
            )
        found[path.stem] = path
    if not found:
        raise InvalidSettings(f"{folder} has no file named after a task that ends in {', '.join(MEDIA_TYPES)}.")
    return [
        Video(name, task.summary, MEDIA_TYPES[found[name].suffix.removeprefix(".")], found[name].read_bytes())
        for name, task in TASKS.items()
        if name in found
    ]
