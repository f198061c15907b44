"""Table of docs/fair-comparison.md: one configuration for all settings, from the Records of tuning."""

from diffclone.experiments.study.candidates import SNAPSHOTS, TUNED_METHODS
from diffclone.experiments.study.results import describe_configuration
from diffclone.experiments.study.transfer import SharedConfiguration, mean, shared_configurations
from docs.study_tables import finished_stages, known_settings, read_records


def transfer_table() -> str:
    """Return the best shared configuration of each method, of any length and of the longest."""
    stages = {method.name: finished_stages("tuning", method.name) for method in TUNED_METHODS.values()}
    settings = [setting for setting in known_settings() if setting in stages["BC"] and setting in stages["DBC (paper)"]]
    methods = [name for name, done in stages.items() if all(setting in done for setting in settings)]
    lines = [
        f"| method | one configuration | {' | '.join(settings)} | mean | worst | mean, setting left out |",
        f"|{'---|' * (len(settings) + 5)}",
    ]
    for length in (None, SNAPSHOTS[-1]):
        for shared in shared_configurations(read_records(), settings, methods, length):
            lines.append(row(shared, settings))
    return "\n".join(lines)


def row(shared: SharedConfiguration, settings: list[str]) -> str:
    """Return one line of the table."""
    values = [shared.relative[setting] for setting in settings]
    cells = " | ".join(f"{value:.0f}" for value in values)
    chosen = f"{describe_configuration(shared.configuration)}; {shared.snapshot:,} updates"
    left_out = mean(list(shared.left_out.values()))
    return f"| {shared.method} | {chosen} | {cells} | {mean(values):.1f} | {min(values):.0f} | {left_out:.1f} |"


BLOCKS = {"study-transfer": transfer_table}
"""For docs/make.py."""
