import dataclasses
from typing import Any

import numpy as np
import pytest

from diffclone.experiments.catalogue.claim_tests import minus, on_recipe, on_study, trained
from diffclone.experiments.catalogue.claims import CLAIMS
from diffclone.experiments.claims import Claim, ClaimRow, ClaimTest, MeasuredRatio
from diffclone.experiments.claims_plan import claims_experiments, recipe_experiment
from diffclone.experiments.claims_table import decide_claims
from diffclone.experiments.evidence import read_measured
from diffclone.experiments.paper import paper
from diffclone.experiments.plan import plan
from diffclone.experiments.specification import RunOptions, TableCell, Variant
from diffclone.experiments.verdicts import MIN_SEEDS
from diffclone.records import Record
from example_experiments import evaluation_of

STARTS = 40


def successes(rate: float, seeds: int, salt: int = 0) -> dict[str, list[str]]:
    rng = np.random.default_rng([seeds, salt])
    return {"success": ["".join(str(int(x < rate)) for x in rng.random(STARTS)) for _ in range(seeds)]}


def recipe_record(rate: float, method: str = "dbc", seeds: int = 12, task: str = "maze", **changes: Any) -> Record:
    results = {
        "task": task,
        "preset": f"{task}/{method}/paper",
        "protocol": "fixed",
        "starts": "evaluation",
        "options": {},
        "episodes": STARTS,
        "precision": changes.pop("precision", "float32"),
        "success_rate": rate,
        "outcomes": successes(rate, seeds, len(method)),
        **changes.pop("results", {}),
    }
    first = changes.pop("first", 0)
    return Record(
        kind="evaluation",
        settings={"type": method},
        members=[{"seed": first + k} for k in range(seeds)],
        data={"fingerprint": changes.pop("fingerprint", paper()["authors"].get(task, "ours"))},
        results={key: value for key, value in results.items() if value is not None},
        device="cpu",
        seconds=1.0,
        **changes,
    )


def study_record(rate: float, method: str, snapshot: int = 2000, chosen: int = 2000, seeds: int = 12) -> Record:
    study = {"study": "fresh", "setting": "fetch-pick-27", "method": method, "snapshot": snapshot, "chosen": chosen}
    record = recipe_record(rate, method, seeds, "fetch-pick", first=100, results=study)
    return dataclasses.replace(record, results={**record.results, "preset": None})


def small_record(rate: float, method: str) -> Record:
    record = study_record(rate, method)
    return dataclasses.replace(record, results={**record.results, "small": True})


def row_of(test: ClaimTest | MeasuredRatio, *records: Record) -> ClaimRow:
    (row,) = decide_claims(records, [Claim("c", "A claim.", "Table 1", "above", (test,))]).rows
    return row


MAZE = on_recipe("maze", "dbc", "bc", headroom=True)


def test_the_claims_are_complete() -> None:
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) >= 20
    for claim in CLAIMS:
        assert claim.claim.endswith(".")
        assert claim.place.startswith(("Section", "Appendix"))
        assert claim.tests
    tests = [test for claim in CLAIMS for test in claim.tests if isinstance(test, ClaimTest)]
    for test in tests:
        for contrast in test.contrasts:
            for weight, cell in contrast:
                assert weight in (1.0, -1.0)
                sources = (cell.trained, cell.recipe, cell.study, cell.measured)
                assert sum(source is not None for source in sources) == 1


def test_without_records_nothing_was_run() -> None:
    table = decide_claims([])
    assert {row.verdict for row in table.rows} == {"not run"}
    assert table.counts == {"not run": len(table.rows)}
    assert not table.quick


def test_a_recipe_row() -> None:
    row = row_of(MAZE, recipe_record(0.95), recipe_record(0.6, "bc"))
    assert (row.verdict, row.seeds, row.starts) == ("reproduced", 12, STARTS)
    assert row.compared == "DBC (paper) − BC (paper)"
    assert "the authors' demonstrations" in row.on
    assert row.difference is not None
    assert row.difference == pytest.approx(35, abs=5)
    assert row.interval is not None
    assert row.interval[0] < row.difference < row.interval[1]
    assert row.headroom == pytest.approx(40, abs=5)
    assert len(row.records) == 2


def test_the_other_sign_contradicts() -> None:
    assert row_of(MAZE, recipe_record(0.6), recipe_record(0.95, "bc")).verdict == "contradicted"


def test_seeds_are_joined_over_records() -> None:
    halves = [recipe_record(0.95, seeds=6, first=first) for first in (0, 6)]
    row = row_of(MAZE, *halves, recipe_record(0.6, "bc"))
    assert (row.verdict, row.seeds) == ("reproduced", 12)
    few = row_of(MAZE, halves[0], recipe_record(0.6, "bc"))
    assert (few.verdict, few.reason) == ("unresolved", "6 seeds")
    assert few.interval is not None


def test_other_seeds_on_the_same_starts_are_compared_unpaired() -> None:
    row = row_of(MAZE, recipe_record(0.95, first=100), recipe_record(0.6, "bc"))
    assert (row.verdict, row.seeds) == ("reproduced", 12)


def test_demonstrations_are_not_mixed_and_precisions_only_if_there_is_nothing_else() -> None:
    fast, slow = recipe_record(0.95, precision="tf32"), recipe_record(0.6, "bc")
    assert row_of(MAZE, fast, slow).on.endswith("different precisions")
    assert not row_of(MAZE, fast, slow, recipe_record(0.6, "bc", seeds=3, precision="tf32")).on.endswith("precisions")
    assert row_of(MAZE, recipe_record(0.95, fingerprint="ours"), recipe_record(0.6, "bc")).verdict == "not run"
    row = row_of(MAZE, recipe_record(0.95, fingerprint="ours"), recipe_record(0.6, "bc", fingerprint="ours"))
    assert row.verdict == "reproduced"
    assert "bundled demonstrations" in row.on


def test_records_without_outcomes_have_a_level_but_no_verdict() -> None:
    old = {"outcomes": None}
    row = row_of(MAZE, recipe_record(0.95, results=old), recipe_record(0.6, "bc", results=old))
    assert (row.verdict, row.reason) == ("unresolved", "no outcomes recorded")
    assert (row.difference, row.interval) == (pytest.approx(35.0), None)


def test_quick_records_have_no_verdict() -> None:
    quick = [recipe_record(0.95, quick=True), recipe_record(0.6, "bc", quick=True)]
    row = row_of(MAZE, *quick)
    assert (row.verdict, row.reason, row.quick) == ("unresolved", "quick", True)
    real = row_of(MAZE, *quick, recipe_record(0.6), recipe_record(0.95, "bc"))
    assert (real.verdict, real.quick) == ("contradicted", False)


def test_a_study_row_has_the_chosen_snapshot() -> None:
    test = on_study("fetch-pick", "DBC (paper)", "BC")
    other = study_record(0.1, "DBC (paper)", snapshot=4000)
    row = row_of(test, study_record(0.9, "DBC (paper)"), other, study_record(0.5, "BC"))
    assert (row.verdict, row.compared) == ("reproduced", "DBC (paper), tuned − BC, tuned")
    assert row_of(test, other, study_record(0.5, "BC")).reason == "DBC (paper), tuned"


def test_a_trained_cell_is_found_by_what_it_is() -> None:
    cells = [trained(name, Variant("spiral", name), options={"start_noise": 0.01}) for name in ("dbc", "bc")]
    test = ClaimTest("Spiral", (minus(cells[0], cells[1]),), "spiral")
    options = RunOptions(seeds=MIN_SEEDS)
    records = [
        evaluation_of(cell.trained, options, results={"outcomes": successes(rate, MIN_SEEDS)})
        for cell, rate in zip(cells, (0.9, 0.2), strict=True)
        if cell.trained is not None
    ]
    assert row_of(test, *records).verdict == "reproduced"
    other = TableCell("x", "", Variant("spiral", "bc"), options={"start_noise": 0.02})
    assert row_of(test, records[0], evaluation_of(other, options)).reason == "bc"


def one_more_seed(rate: float, episodes: int, method: str = "dbc") -> Record:
    """Return a Record of seed 999 with another number of episodes."""
    record = recipe_record(rate, method, seeds=1, first=999)
    outcomes = {"success": ["1" * episodes]}
    return dataclasses.replace(record, results={**record.results, "episodes": episodes, "outcomes": outcomes})


def test_a_seed_with_few_episodes_does_not_take_the_starts_of_all_others() -> None:
    records = [recipe_record(0.95), recipe_record(0.6, "bc")]
    row, more = row_of(MAZE, *records), row_of(MAZE, *records, one_more_seed(1.0, 3, "bc"))
    assert (more.starts, more.seeds, more.verdict) == (STARTS, 12, "reproduced")
    assert (more.difference, more.interval, more.headroom) == (row.difference, row.interval, row.headroom)
    # Left out of both methods, so that they stay paired.
    both = row_of(MAZE, *records, one_more_seed(1.0, STARTS), one_more_seed(1.0, 3, "bc"))
    assert (both.difference, both.interval) == (row.difference, row.interval)
    # A few starts less cost less than a seed.
    near = row_of(MAZE, *records, one_more_seed(1.0, STARTS - 1), one_more_seed(1.0, STARTS - 1, "bc"))
    assert (near.starts, near.seeds) == (STARTS - 1, 13)


def test_many_episodes_of_few_seeds_do_not_take_the_seeds_that_a_verdict_needs() -> None:
    records = [recipe_record(0.95), recipe_record(0.6, "bc")]
    longer = [recipe_record(rate, method, seeds=6) for rate, method in ((0.95, "dbc"), (0.6, "bc"))]
    for record in longer:
        outcomes = {"success": [4 * row for row in record.results["outcomes"]["success"]]}
        results = {**record.results, "episodes": 4 * STARTS, "outcomes": outcomes}
        records.append(dataclasses.replace(record, results=results))
    row = row_of(MAZE, *records)
    assert (row.starts, row.seeds, row.verdict) == (STARTS, 12, "reproduced")


def test_the_difference_is_that_of_the_episodes_of_its_interval() -> None:
    ours = recipe_record(0.5)
    late = recipe_record(0.5, "bc")
    outcomes = {"success": [10 * "0" + 30 * "1"] * 12}  # ours has only the first starts, on which BC always fails
    short = {"success": [row[:10] for row in ours.results["outcomes"]["success"]]}
    ours = dataclasses.replace(ours, results={**ours.results, "episodes": 10, "outcomes": short})
    row = row_of(MAZE, ours, dataclasses.replace(late, results={**late.results, "outcomes": outcomes}))
    assert row.starts == 10
    assert row.difference is not None
    assert row.difference == pytest.approx(np.mean([letter == "1" for own in short["success"] for letter in own]) * 100)
    assert row.interval is not None
    assert row.interval[0] <= row.difference <= row.interval[1]
    assert row.headroom == pytest.approx(100)  # the baseline, which always fails on these starts, and the expert never


def test_seeds_of_two_choices_are_not_joined() -> None:
    def fields(record: Record, lr: float, when: str, **changes: Any) -> Record:
        results = {**record.results, "fields": {"training.lr": lr}}
        return dataclasses.replace(record, when=when, results=results, **changes)

    test = on_study("fetch-pick", "DBC (paper)", "BC")
    baseline, other_seeds = study_record(0.5, "BC"), [{"seed": 200 + k} for k in range(12)]
    old = fields(study_record(0.1, "DBC (paper)", 500, 500), 9.9, "2026-01-01T00:00:00+00:00", members=other_seeds)
    new = fields(study_record(0.9, "DBC (paper)"), 0.1, "2026-02-01T00:00:00+00:00")
    quick = fields(study_record(0.1, "DBC (paper)", 500, 500), 9.9, "2026-03-01T00:00:00+00:00", quick=True)
    expected = row_of(test, new, baseline)
    for records in ((old, new), (new, old), (new, quick)):
        row = row_of(test, *records, baseline)
        assert (row.difference, row.seeds, row.records) == (expected.difference, 12, expected.records)
    same = fields(study_record(0.9, "DBC (paper)"), 0.1, "2026-01-01T00:00:00+00:00", members=other_seeds)
    assert len(row_of(test, same, new, baseline).records) == 3


def test_how_far_losses_fall() -> None:
    losses = {"L_BC": [[1.2, 1.4], [0.5, 1.1]], "L_DM": [[0.4, 0.2], [0.1, 0.1]]}
    record = Record("curves", {}, [{"seed": 0}, {"seed": 1}], {}, {"losses": losses}, "cpu", 0.0)
    assert read_measured(record, "L_BC") == {0: [50.0], 1: [pytest.approx(-10.0)]}
    assert read_measured(record, "L_DM") == {0: [pytest.approx(75.0)], 1: [pytest.approx(50.0)]}


def test_everything_that_claims_need_is_planned() -> None:
    names = {cell.variant.task for experiment in claims_experiments() for cell in experiment.cells}
    assert {"maze", "fetch-pick", "spiral", "car-racing", "walker"} <= names
    jobs = plan([recipe_experiment()], RunOptions(source="paper"), [])
    assert {job.preset for job in jobs} >= {"maze/bc/paper", "ant-reach/dbc/paper"}


def test_the_small_study_and_the_full_one_are_never_compared() -> None:
    full = on_study("fetch-pick", "DBC (paper)", "Diffusion Policy")
    small = on_study("fetch-pick", "DBC (paper)", "Diffusion Policy", small=True)
    records = [small_record(0.9, "DBC (paper)"), small_record(0.5, "Diffusion Policy")]
    row = row_of(small, *records)
    assert (row.verdict, row.on) == ("reproduced", "fetch-pick-27, small study")
    assert row_of(full, *records).verdict == "not run"
    assert row_of(small, records[0], study_record(0.5, "Diffusion Policy")).verdict == "not run"
    assert row_of(full, records[0], study_record(0.5, "Diffusion Policy")).verdict == "not run"


def brief_and_small() -> dict[str, tuple[list[ClaimTest], list[ClaimTest]]]:
    """Return the tests of each claim with the brief schedule, and those with the small one."""
    tests = {claim.name: [test for test in claim.tests if isinstance(test, ClaimTest)] for claim in CLAIMS}

    def trained_tests(name: str, *, small: bool) -> list[ClaimTest]:
        cells = {id(test): test.contrasts[0][0][1] for test in tests[name]}
        own = [test for test in tests[name] if cells[id(test)].trained or cells[id(test)].measured]
        return [test for test in own if cells[id(test)].small == small]

    return {name: (trained_tests(name, small=False), trained_tests(name, small=True)) for name in tests}


@pytest.mark.parametrize("name", [claim.name for claim in CLAIMS if claim.name != "pixels"])
def test_every_test_of_the_brief_schedule_has_a_small_form(name: str) -> None:
    brief, small = brief_and_small()[name]
    names = [[[cell.method for _, cell in contrast] for contrast in test.contrasts] for test in brief]
    assert [[[cell.method for _, cell in contrast] for contrast in test.contrasts] for test in small] == names
    assert [(test.task, test.unit, test.margin) for test in small] == [(t.task, t.unit, t.margin) for t in brief]
    assert all(test.on.endswith("small schedule") for test in small)
    assert all(cell.small for test in small for contrast in test.contrasts for _, cell in contrast)


def test_small_and_brief_policies_are_never_compared() -> None:
    cells = [trained(method, Variant("spiral", method), small=True) for method in ("dbc", "bc")]
    small, brief = (
        ClaimTest("x", (minus(*(dataclasses.replace(cell, small=own) for cell in cells)),), "spiral")
        for own in (True, False)
    )
    options = RunOptions(source="small", seeds=MIN_SEEDS)
    records = [
        evaluation_of(cell.trained, options, results={"outcomes": successes(rate, MIN_SEEDS)})
        for cell, rate in zip(cells, (0.9, 0.2), strict=True)
        if cell.trained is not None
    ]
    assert row_of(small, *records).verdict == "reproduced"
    assert row_of(brief, *records).verdict == "not run"
