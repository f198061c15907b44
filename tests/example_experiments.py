"""Two cells on Spiral, an experiment of both, and the Record that evaluating a cell would make."""

import dataclasses
import json
from typing import Any

from diffclone.experiments.presets import variant_method
from diffclone.experiments.record_index import load_demonstrations
from diffclone.experiments.specification import Experiment, RunOptions, TableCell, Variant
from diffclone.records import Record
from diffclone.settings import to_dict

BC = TableCell("BC", "success", Variant("spiral", "bc"), options={"start_noise": 0.01})
DBC = TableCell("DBC", "success", Variant("spiral", "dbc"), options={"start_noise": 0.01})
TINY = Experiment("tiny", "Tiny", "An experiment for tests.", cells=(BC, DBC))


def evaluation_of(cell: TableCell, options: RunOptions, **changes: Any) -> Record:
    """Return a Record of the cell with made-up scores; `changes` replace its fields, or some of its results."""
    task = cell.variant.task
    results = {
        "task": task,
        "protocol": "fixed",
        "starts": "evaluation",
        "options": dict(cell.options),
        "episodes": dataclasses.replace(options, quick=False).episodes_for(task),
        "success_rate": 0.5,
        "success_interval": [0.4, 0.6],
        "mean_return": 100.0,
        "return_interval": [90.0, 110.0],
    }
    record = Record(
        kind="evaluation",
        settings=to_dict(variant_method(cell.variant, options)),
        members=[{"seed": seed, **cell.select} for seed in options.seed_list],
        data={"fingerprint": load_demonstrations(task, cell.variant.data, options).fingerprint, "meta": {}},
        results=results | changes.pop("results", {}),
        device="cpu",
        seconds=1.0,
        quick=options.quick,
    )
    return Record(**json.loads(json.dumps(dataclasses.asdict(dataclasses.replace(record, **changes)))))
