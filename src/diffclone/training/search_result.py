"""What a search returns: the policy, everything that was tried, and the choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from diffclone.data.notebook import html_table
from diffclone.policy import Policy
from diffclone.training.choice import Candidate, best_candidates, describe_choice

SHOWN = 8
"""Candidates that a notebook shows."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class SearchResult:
    """A trained policy, and how it was chosen."""

    policy: Policy
    """The chosen settings, trained on all demonstrations."""
    candidates: Sequence[Candidate]
    """Everything that was tried; empty if there was nothing to choose with."""
    chosen: int | None
    """Index of the choice in `candidates`; None if there was nothing to choose with."""
    notes: Sequence[str]
    """What the demonstrations did not allow, in one line each."""
    seconds: float
    """Wall-clock time of the search and the final training."""

    @property
    def choice(self) -> Candidate | None:
        """The candidate that was chosen."""
        return None if self.chosen is None else self.candidates[self.chosen]

    def __repr__(self) -> str:
        reason = "; ".join(self.notes) if self.choice is None else describe_choice(self.choice, self.candidates)
        return f"SearchResult({self.policy!r}, {reason})"

    def _repr_html_(self) -> str:
        if self.chosen is None or self.choice is None:
            return html_table("Search", [("policy", repr(self.policy)), *(("note", note) for note in self.notes)])
        header, rows = best_candidates(self.candidates, self.chosen, SHOWN)
        return html_table(f"Chosen: {describe_choice(self.choice, self.candidates)}", rows, header)
