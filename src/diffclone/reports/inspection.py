"""The page of `diffclone inspect`: what was found in demonstrations, pictures before tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from diffclone.reports.episode_player import PlayedEpisode, make_player
from diffclone.reports.inspection_figures import (
    Dimension,
    draw_coverage,
    draw_histograms,
    draw_lengths_and_scores,
    draw_profiles,
)
from diffclone.reports.page import Details, Note, Page, Paragraph, Part, Section, Table, render_page

Points = npt.NDArray[np.floating]

SEVERITIES = ("problem", "warning", "note")
RANGE_COLUMNS = ("dimension", "lowest", "mean", "highest", "standard deviation", "bounds")
MEANING = (
    "An unusual episode may be broken, or may be the only one that shows a rare situation: look at it before you leave "
    "it out."
)


@final
@dataclass(frozen=True)
class InspectionPage:
    """Everything that the page shows, as plain arrays and rows of text."""

    name: str
    about: Mapping[str, str]
    """What the reader understood of the file."""
    facts: Sequence[tuple[str, str]]
    findings: Sequence[Sequence[str]]
    """Severity, what, where, and what to do."""
    ranges: Sequence[Sequence[str]]
    ranking: Sequence[Sequence[str]]
    ranking_columns: Sequence[str]
    samples: Mapping[str, Points]
    """Some rows of the observations and of the actions; each column becomes a histogram."""
    bounds: tuple[Points, Points] | None
    """The lowest and the highest action, if they are known."""
    lengths: npt.NDArray[np.int64]
    scores: Points
    """How unusual each episode is."""
    places: Points
    """Places of some states on the map."""
    map_method: str
    profiles: Sequence[Dimension]
    episodes: Sequence[PlayedEpisode]
    """Some episodes to step through, the most unusual first."""
    source: str
    """The metadata of the demonstrations."""


def inspection_page(shown: InspectionPage) -> str:
    """Render the page."""
    return render_page(
        Page(
            title=f"The demonstrations {shown.name}",
            kicker="inspect",
            lead=[summarise_findings(shown.findings)],
            facts=shown.facts,
            sections=make_sections(shown),
            command="diffclone inspect --page",
        )
    )


def summarise_findings(findings: Sequence[Sequence[str]]) -> str:
    """Return how many findings there are, in one sentence."""
    if not findings:
        return "No check found a problem. Checks see only arrays, not their meaning."
    counts = Counter(row[0] for row in findings)
    parts = [f"{counts[name]} {name}{'s' * (counts[name] != 1)}" for name in SEVERITIES if counts[name]]
    return f"The checks found {', '.join(parts)}."


def make_sections(shown: InspectionPage) -> list[Section]:
    """Return the sections: findings, pictures, tables."""
    actions = {name: values for name, values in shown.samples.items() if name == "act"}
    others = {name: values for name, values in shown.samples.items() if name != "act"}
    unusual: list[Part] = [draw_profiles(shown.profiles)] if shown.profiles else []
    found: list[Part] = [Note(*row) for row in shown.findings]
    return [
        *([Section("findings", "Findings", found)] if found else []),
        Section("coverage", "Coverage of states", [draw_coverage(shown.places, shown.episodes, shown.map_method)]),
        Section("unusual", "Unusual episodes against the rest", [*unusual, Paragraph(MEANING)]),
        Section("episode", "Step through an episode", [make_player(shown.places, shown.episodes)]),
        Section("actions", "Actions", [draw_histograms(name, x, shown.bounds) for name, x in actions.items()]),
        Section("observations", "Observations", [draw_histograms(name, x) for name, x in others.items()]),
        Section(
            "ranking",
            "Ranking of episodes",
            [
                draw_lengths_and_scores(shown.lengths, shown.scores),
                Table("Most unusual episodes", shown.ranking_columns, shown.ranking),
            ],
        ),
        Section(
            "contents-of-the-file",
            "Contents and ranges",
            [
                Table("Contents", ("what", "as it was read"), list(shown.about.items())),
                Table("Ranges", RANGE_COLUMNS, shown.ranges),
                Details("Metadata", shown.source),
            ],
        ),
    ]
