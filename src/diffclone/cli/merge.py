"""The `merge` command."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from diffclone.cli.console import print_json, print_message
from diffclone.errors import InvalidSettings
from diffclone.experiments.record_keys import merge_records
from diffclone.files import refuse_existing, write_lines


@dataclass(frozen=True)
class Merge:
    """Join files of Records into one, without duplicates."""

    records: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RECORDS")]
    """Files of Records, such as OUT/shard-*-of-8/records.jsonl; .gz is read too."""
    out: Path
    """File to write, compressed if its name ends in .gz. An existing file is not overwritten."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Join the files. If Records contradict each other, nothing is written."""
        if not self.records:
            raise InvalidSettings("name the files of Records to merge.")
        refuse_existing(self.out)
        records, duplicates = merge_records(self.records)
        write_lines(self.out, [asdict(record) for record in records])
        if self.json:
            print_json({"out": str(self.out), "records": len(records), "duplicates": duplicates})
        else:
            same = f"; {duplicates} duplicates were left out" if duplicates else ""
            print_message(f"wrote {self.out}: {len(records)} Records of {len(self.records)} files{same}.")
