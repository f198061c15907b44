"""Decide the claims of the paper from Records: the table of all tests with their verdicts.

verdicts.py has the rule, catalogue/claims.py the claims.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from diffclone.experiments.catalogue.claims import CLAIMS
from diffclone.experiments.claims import (
    MARGIN,
    RETURN_MARGIN,
    Claim,
    ClaimRow,
    ClaimsTable,
    ClaimTest,
    Contrast,
    MeasuredRatio,
)
from diffclone.experiments.evidence import (
    NOT_RUN,
    QUICK,
    RECIPE_KINDS,
    CellFinder,
    FoundCell,
    RecipeKind,
    use_common_starts,
)
from diffclone.experiments.verdicts import RULE, Decision, Evidence, decide_all
from diffclone.records import Record
from diffclone.statistics import Estimate, Table, estimate_contrast

MOST_NAMED = 2
"""Missing cells that a row names."""


@final
@dataclass(frozen=True, eq=False)
class CollectedTest:
    """Everything that a row of the table shows, before the verdict."""

    evidence: Evidence
    differences: tuple[float, ...]
    """Also known for Records without outcomes."""
    starts: int | None
    records: tuple[Record, ...]
    kind: RecipeKind


def decide_claims(
    records: Iterable[Record], claims: Sequence[Claim] = CLAIMS, files: Mapping[str, str] | None = None
) -> ClaimsTable:
    """Return the table of the claims with their verdicts."""
    finder = CellFinder(records, files)
    tests = [(claim, test) for claim in claims for test in claim.tests if isinstance(test, ClaimTest)]
    inputs = [collect(claim, test, finder) for claim, test in tests]
    decisions = iter(zip(inputs, decide_all([given.evidence for given in inputs]), strict=True))
    rows: list[ClaimRow] = []
    for claim in claims:
        for test in claim.tests:
            if isinstance(test, MeasuredRatio):
                rows.append(ratio_row(claim, test, finder))
            else:
                given, decision = next(decisions)
                rows.append(claim_row(claim, test, given, decision))
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    return ClaimsTable(tuple(rows), RULE, counts)


def collect(claim: Claim, test: ClaimTest, finder: CellFinder) -> CollectedTest:
    """Estimate the contrasts of a test. There may be several kinds of Records of the recipe: the most seeds count."""
    kinds = RECIPE_KINDS if test.contrasts[0][0][1].recipe else RECIPE_KINDS[:1]
    options = [collect_kind(claim, test, finder, kind) for kind in kinds]

    def preference(given: CollectedTest) -> tuple[bool, bool, int, bool]:
        seeds = min((estimate.seeds for estimate in given.evidence.estimates), default=0)
        real = seeds > 0 and given.evidence.problem != QUICK
        return real, real and given.kind.precision is not None, seeds, bool(given.records)

    return max(options, key=preference)


def collect_kind(claim: Claim, test: ClaimTest, finder: CellFinder, kind: RecipeKind) -> CollectedTest:
    """Estimate the contrasts of a test from Records of one kind."""
    found = [[(w, finder.find(cell, kind)) for w, cell in contrast] for contrast in test.contrasts]
    complete = all(cell.outcomes for contrast in found for _, cell in contrast)
    if complete:  # before anything is computed, so that all numbers of a row are those of the same episodes
        found = [use_common_starts(contrast) for contrast in found]
    cells = [cell for contrast in found for _, cell in contrast]
    named = [
        (cell.method, got)
        for parts, own in zip(test.contrasts, found, strict=True)
        for (_, cell), (_, got) in zip(parts, own, strict=True)
    ]
    missing = any(cell.mean is None for cell in cells)
    relative = 100 / cells[-1].mean if test.margin and test.unit == "percent" and cells[-1].mean else 1.0
    estimates = [estimate(contrast, relative) for contrast in found] if complete else []
    means = [one.mean for one in estimates]  # inside their intervals, to the last digit
    if not (estimates or missing):
        means = [sum(w * (cell.mean or 0.0) for w, cell in contrast) * relative for contrast in found]
    authors = bool(test.contrasts[0][0][1].recipe) and kind.authors
    expert = finder.expert_score(test.task, test.setting, authors=authors)
    evidence = Evidence(
        claim.comparison,
        tuple(estimates),
        find_margin(test, expert),
        find_headroom(test, expert, found[0]),
        describe_problem(named),
        missing=missing,
    )
    records = {id(record): record for cell in cells for record in cell.records}
    starts = min((one.starts for one in estimates), default=None)
    return CollectedTest(evidence, tuple(means), starts, tuple(records.values()), kind)


def describe_problem(cells: Sequence[tuple[str, FoundCell]]) -> str | None:
    """Return what is missing, or what else prevents a verdict."""
    missing = list(dict.fromkeys(name for name, cell in cells if cell.problem == NOT_RUN))
    if missing:
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        return f"{'; '.join(missing[:MOST_NAMED])}{more}"
    return "; ".join(dict.fromkeys(cell.problem for _, cell in cells if cell.problem)) or None


def estimate(contrast: Sequence[tuple[float, FoundCell]], scale: float) -> Estimate:
    """Return the estimate of a contrast. Cells with the same seeds are paired."""
    seeds = [sorted(cell.outcomes) for _, cell in contrast]
    paired = all(own == seeds[0] for own in seeds)
    tables: list[Table] = [
        np.array([cell.outcomes[seed] for seed in own], dtype=np.float64)
        for (_, cell), own in zip(contrast, seeds, strict=True)
    ]
    return estimate_contrast(tables, [scale * w for w, _ in contrast], paired=paired)


def find_margin(test: ClaimTest, expert: float) -> float:
    """Return δ in the unit of the test."""
    if test.margin is not None:
        return test.margin
    return RETURN_MARGIN * abs(expert) if test.unit == "return" else MARGIN[test.unit]


def find_headroom(test: ClaimTest, expert: float, contrast: Sequence[tuple[float, FoundCell]]) -> float | None:
    """Return the expert's score minus the baseline's, if the claim needs it and the baseline was run."""
    baseline = contrast[-1][1].mean
    return expert - baseline if test.needs_headroom and baseline is not None else None


def claim_row(claim: Claim, test: ClaimTest, given: CollectedTest, decision: Decision) -> ClaimRow:
    """Return the row of a test. Of several differences it shows the one nearest to failing."""
    evidence, differences = given.evidence, given.differences
    worst = None
    if differences:
        order = [abs(d) for d in differences] if claim.comparison == "within" else [-d for d in differences]
        worst = max(range(len(differences)), key=order.__getitem__)
    shown = test.contrasts[worst or 0]
    on = test.on
    if shown[0][1].recipe and given.records:
        on += ", the authors' demonstrations" if given.kind.authors else ", bundled demonstrations"
        on += "" if given.kind.precision else ", different precisions"
    return ClaimRow(
        claim=claim.claim,
        place=claim.place,
        on=on,
        compared=describe_contrast(shown),
        difference=None if worst is None else differences[worst],
        interval=evidence.estimates[worst].interval() if worst is not None and evidence.estimates else None,
        parts=len(test.contrasts),
        unit=test.unit,
        margin=evidence.margin,
        seeds=min((estimate.seeds for estimate in evidence.estimates), default=None),
        starts=given.starts,
        headroom=evidence.headroom,
        verdict=decision.verdict,
        p=decision.p,
        reason=decision.reason,
        quick=any(record.quick for record in given.records),
        records=given.records,
        name=claim.name,
        note=claim.note,
    )


def describe_contrast(contrast: Contrast) -> str:
    """Return the cells of a contrast as text: "DBC (paper) − BC (paper)"."""
    parts = [f"{'+' if weight > 0 else '−'} {cell.method}" for weight, cell in contrast]
    return " ".join(parts).removeprefix("+ ")


def ratio_row(claim: Claim, test: MeasuredRatio, finder: CellFinder) -> ClaimRow:
    """Return the row of two measured numbers: no test, only a bound."""
    records = [finder.find_measurement(*entry) for entry in (test.first, test.second)]
    found = [record for record in records if record is not None]
    ratio, verdict, reason = None, "not run", None
    if len(found) == 2:
        ratio = float(found[0].results[test.result]) / float(found[1].results[test.result])
        quick = any(record.quick for record in found)
        holds = test.least <= ratio <= test.most
        verdict = "unresolved" if quick else "reproduced" if holds else "contradicted"
        reason = QUICK if quick else "measured once"
    return ClaimRow(
        claim=claim.claim,
        place=claim.place,
        on=test.on,
        compared="ratio",
        difference=ratio,
        interval=None,
        parts=1,
        unit="ratio",
        margin=None,
        seeds=None,
        starts=None,
        headroom=None,
        verdict=verdict,
        p=None,
        reason=reason,
        quick=any(record.quick for record in found),
        records=tuple(found),
        name=claim.name,
        note=claim.note,
    )
