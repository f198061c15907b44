"""Table of docs/fair-comparison.md: one configuration for all settings, from the Records of tuning."""

from functools import cache

from diffclone.experiments.study.candidates import SNAPSHOTS, TUNED_METHODS
from diffclone.experiments.study.results import describe_configuration
from diffclone.experiments.study.transfer import (
    Relative,
    SharedConfiguration,
    mean,
    relative_scores,
    shared_configurations,
)
from docs.study_tables import finished_stages, known_settings, read_records


def transfer_table() -> str:
    """Return the best shared configuration of each method, of any length and of the longest."""
    found = [s for length in (None, SNAPSHOTS[-1]) for s in shared_configurations(read_scores(), length)]
    settings = list(found[0].relative)
    lines = [
        f"| method | one configuration | {' | '.join(settings)} | mean | worst | mean, setting left out |",
        f"|{'---|' * (len(settings) + 5)}",
    ]
    return "\n".join([*lines, *map(row, found)])


@cache
def read_scores() -> Relative:
    """Return the relative scores of the methods that are tuned on all settings on which BC and DBC (paper) are."""
    stages = {method.name: finished_stages("tuning", method.name) for method in TUNED_METHODS.values()}
    settings = [setting for setting in known_settings() if setting in stages["BC"] and setting in stages["DBC (paper)"]]
    methods = [name for name, done in stages.items() if all(setting in done for setting in settings)]
    return relative_scores(read_records(), settings, methods)


def row(shared: SharedConfiguration) -> str:
    """Return one line of the table."""
    values = list(shared.relative.values())
    cells = " | ".join(f"{value:.0f}" for value in values)
    chosen = f"{describe_configuration(shared.configuration)}; {shared.snapshot:,} updates"
    left_out = mean(list(shared.left_out.values()))
    return f"| {shared.method} | {chosen} | {cells} | {mean(values):.1f} | {min(values):.0f} | {left_out:.1f} |"


def lengths_table() -> str:
    """Return the mean of the best shared configuration at each length, and what the configuration is."""
    lines = [
        f"| method | {' | '.join(f'{update:,}' for update in SNAPSHOTS)} |",
        f"|{'---|' * (len(SNAPSHOTS) + 1)}",
    ]
    columns = [shared_configurations(read_scores(), update) for update in SNAPSHOTS]
    for rows in zip(*columns, strict=True):
        cells = [
            f"{mean(list(shared.relative.values())):.1f} ({describe_configuration(shared.configuration)})"
            for shared in rows
        ]
        lines.append(f"| {rows[0].method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def coefficients_table() -> str:
    """Return the mean relative score of each λ of DBC (ours) at each length, for both learning rates."""
    lines = [
        f"| lr | λ | {' | '.join(f'{update:,}' for update in SNAPSHOTS)} |",
        f"|{'---|' * (len(SNAPSHOTS) + 2)}",
    ]
    scores = {
        (c["training.lr"], c["coefficient"], snapshot): mean(list(own.values()))
        for c, snapshot, own in read_scores()["DBC (ours)"]
    }
    for lr, λ in dict.fromkeys((lr, λ) for lr, λ, _ in scores):
        cells = " | ".join(f"{scores[lr, λ, update]:.1f}" for update in SNAPSHOTS)
        lines.append(f"| {lr:g} | {λ:g} | {cells} |")
    return "\n".join(lines)


BLOCKS = {
    "study-transfer-coefficients": coefficients_table,
    "study-transfer": transfer_table,
    "study-transfer-lengths": lengths_table,
}
"""For docs/make.py."""
