"""What `diffclone reproduce claims` runs, and the table that it prints."""

from collections.abc import Mapping
from dataclasses import asdict, replace

from diffclone.cli.console import print_json, print_message, print_table
from diffclone.experiments import Experiment
from diffclone.experiments.catalogue.claim_tests import SETTINGS
from diffclone.experiments.claims import ClaimsTable
from diffclone.experiments.claims_plan import claims_experiments, recipe_experiment
from diffclone.experiments.plan import filter_experiment
from diffclone.experiments.specification import RunOptions
from diffclone.experiments.study.candidates import FRESH_SEEDS
from diffclone.experiments.study.plan import StudyOptions
from diffclone.experiments.verdicts import MIN_SEEDS
from diffclone.methods import METHODS
from diffclone.reports.claims import HEADS, count_verdicts, text_rows
from diffclone.tasks import TASKS

CLAIMS = "claims"
"""The name on the command line."""
TUNED = {"bc": "bc", "dbc-paper": "dbc", "diffusion-policy": "diffusion-policy", "ibc": "ibc"}
"""Methods of the study that claims compare, and their names among all methods."""


def claims_stages(options: RunOptions, seeds: int | None) -> list[tuple[list[Experiment], RunOptions]]:
    """Return the experiments that the claims need, each list with its options: our settings, then the paper's.

    With the source `small` it returns only what a machine without a GPU can run.
    """
    small = options.source == "small"
    options = replace(options, source="small" if small else "ours", seeds=MIN_SEEDS if seeds is None else seeds)
    ours = [filter_experiment(experiment, options.only) for experiment in claims_experiments(small=small)]
    if small:
        return [(ours, options)]
    recipe = filter_experiment(recipe_experiment(), options.only)
    return [(ours, options), ([recipe], replace(options, source="paper"))]


def claims_study(
    only: str, seeds: int | None, files: Mapping[str, str], *, quick: bool, small: bool = False
) -> StudyOptions | None:
    """Return the study of tuned methods that claims need, for the tasks and methods of `only`; None if it has none."""
    words = [word for word in only.split(",") if word]
    tasks, names = ([word for word in words if word in registry] for registry in (TASKS, METHODS))
    settings = tuple(setting for task, setting in SETTINGS.items() if not tasks or task in tasks)
    methods = tuple(key for key in TUNED if not names or TUNED[key] in names)
    if not settings or not methods:
        return None
    seeds = MIN_SEEDS if seeds is None and small else seeds
    seeds = None if seeds is None else min(seeds, len(FRESH_SEEDS))
    return StudyOptions(("tuning",), settings, methods, seeds, quick, files, small)


SHOWN = ("claim", "tested on", "difference (95 %)", "verdict")
"""The columns that fit 80 characters; `--json` and the report have all."""


def print_claims(table: ClaimsTable, *, json: bool) -> None:
    """Print the claims with their verdicts."""
    if json:
        print_json(asdict(table))
        return
    mark = " (quick: no verdicts)" if table.quick else ""
    columns = [HEADS.index(name) for name in SHOWN]
    rows = [[row[k] for k in columns] for row in text_rows(table.rows)]
    print_table(f"Claims of the paper{mark}", list(SHOWN), rows)
    print_message(count_verdicts(table))
    print_message(table.rule)
