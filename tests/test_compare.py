import dataclasses
from pathlib import Path

import pytest

from diffclone.experiments import EXPERIMENTS
from diffclone.experiments.compare import (
    combine,
    compare_experiments,
    compare_value,
    name_row,
    read_value,
    uses_authors_data,
)
from diffclone.experiments.paper import paper
from diffclone.experiments.record_index import RecordIndex, identify_measurement
from diffclone.experiments.results import MeasuredValue, PrintedValue
from diffclone.experiments.specification import Experiment, Measurement, RunOptions, TableCell, Variant
from diffclone.records import Record
from diffclone.reports.numbers import format_number, format_signed
from diffclone.tasks import TASKS
from example_experiments import BC, TINY, evaluation_of


def value(mean: float, half: float, *, quick: bool = False) -> MeasuredValue:
    return MeasuredValue(mean, mean - half, mean + half, 5, 100, evaluation_of(BC, RunOptions(quick=quick)))


def test_levels_are_compared_on_the_authors_demonstrations_only() -> None:
    printed = PrintedValue(95.4, 1.7, 3)
    theirs = compare_value("r", "c", "success", value(99.9, 1.2), printed, None, authors=True)
    assert (theirs.status, theirs.by) == ("compared", pytest.approx(4.5))
    ours = compare_value("r", "c", "success", value(99.9, 1.2), printed, None, authors=False)
    assert (ours.status, ours.by) == ("other demonstrations", None)
    assert not uses_authors_data("maze", {})
    assert not uses_authors_data("fetch-pick", {})


def test_the_authors_file_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "maze.npz"
    demos = TASKS["spiral"].demonstrations().take([0])
    demos.save(path)
    assert not uses_authors_data("maze", {"maze": str(path)})
    monkeypatch.setitem(paper()["authors"], "maze", demos.fingerprint)
    assert uses_authors_data("maze", {"maze": str(path)})


def test_results_that_are_not_comparable() -> None:
    printed = PrintedValue(95.4, 1.7, 3)

    def status(unit: str, ours: MeasuredValue | None, shown: PrintedValue | None, reason: str | None = None) -> str:
        return compare_value("r", "c", unit, ours, shown, reason, authors=True).status

    assert status("success", value(99.9, 1.2, quick=True), printed) == "not comparable"
    assert status("episodes/s", value(9.0, 0.0), printed) == "not comparable"
    assert status("times", value(9.0, 0.0), printed) == "not comparable"
    assert status("mse", value(0.02, 0.0), printed) == "not comparable"
    assert status("success", value(9.0, 0.0), None) == "not printed"
    assert status("success", None, printed) == "not run"
    failed = compare_value("r", "c", "success", None, printed, "no such package", authors=True)
    assert (failed.status, failed.reason) == ("failed", "no such package")


def test_rows_say_whose_dbc_they_are() -> None:
    assert name_row("DBC", "ours") == "DBC (ours)"
    assert name_row("DBC over Implicit BC", "paper") == "DBC (paper) over Implicit BC"
    assert name_row("BC", "ours") == "BC"


def test_old_intervals_of_constant_outcomes_are_over_seeds() -> None:
    record = evaluation_of(BC, RunOptions(), results={"success_rate": 1.0, "success_interval": [0.963, 1.0]})
    assert read_value(record, "success").low == pytest.approx(100 * 0.025 ** (1 / 5))


def test_derived_numbers() -> None:
    assert combine("difference", (90.0, 3.0), (92.0, 4.0)) == (pytest.approx(2.0), pytest.approx(5.0))
    assert combine("drop", (80.0, 0.0), (60.0, 0.0)) == (pytest.approx(25.0), 0.0)
    assert combine("drop", (80.0, 8.0), (60.0, 0.0)) == (pytest.approx(25.0), pytest.approx(7.5))
    assert combine("drop", (80.0, 8.0), (0.0, 4.0)) == (pytest.approx(100.0), pytest.approx(5.0))
    assert combine("times", (30.0, 3.0), (10.0, 0.0)) == (pytest.approx(3.0), pytest.approx(0.3))


def test_the_drop_is_computed_from_both_ends() -> None:
    experiment, options = EXPERIMENTS["generalization"], RunOptions()
    rates = {"1": 0.8, "2": 0.6}
    records = [
        evaluation_of(cell, options, results={"success_rate": rates.get(cell.column, 0.7)}) for cell in experiment.cells
    ]
    (table,) = compare_experiments([experiment], records)
    drops = [cell for cell in table.cells if cell.column == "drop from 1 to 2"]
    assert [cell.row for cell in drops] == ["BC", "Implicit BC", "Diffusion Policy", "DBC (ours)"]
    for cell in drops:
        assert cell.ours is not None
        assert cell.ours.mean == pytest.approx(25.0)
    assert [cell.printed.mean for cell in drops if cell.printed] == [27.0, 71.6, 35.3, 26.1]
    (empty,) = compare_experiments([experiment], [])
    assert {cell.status for cell in empty.cells} == {"not run"}
    (half,) = compare_experiments([experiment], records[: len(records) // 4 - 1])  # BC without the last cell
    assert {cell.status for cell in half.cells if cell.column == "drop from 1 to 2"} == {"not run"}
    nothing = [evaluation_of(cell, options, results={"success_rate": 0.0}) for cell in experiment.cells]
    (lost,) = compare_experiments([experiment], nothing)
    reasons = {cell.reason for cell in lost.cells if cell.column == "drop from 1 to 2"}
    assert reasons == {"division by 0"}


def test_the_largest_then_newest_record_is_used() -> None:
    small, large = evaluation_of(BC, RunOptions(seeds=3)), evaluation_of(BC, RunOptions(seeds=8))
    newer = dataclasses.replace(large, when="2999-01-01T00:00:00+00:00")
    quick = evaluation_of(BC, RunOptions(quick=True))
    for records in ([small, large], [large, small]):
        (table,) = compare_experiments([TINY], records)
        assert table.cells[0].ours is not None
        assert table.cells[0].ours.seeds == 8
    (table,) = compare_experiments([TINY], [newer, large, quick])
    assert table.cells[0].ours is not None
    assert table.cells[0].ours.record is newer
    assert not table.quick
    (table,) = compare_experiments([TINY], [quick])
    assert table.quick


def test_success_is_in_percent_and_returns_are_raw() -> None:
    runner = TableCell("BC", "Walker", Variant("walker", "bc"), paper_key="main-table.walker.bc")
    experiment = Experiment("one", "One", "An experiment for tests.", cells=(BC, runner))
    (table,) = compare_experiments([experiment], [evaluation_of(BC, RunOptions()), evaluation_of(runner, RunOptions())])
    success, returns = table.cells
    assert success.ours is not None
    assert (success.unit, success.ours.mean, success.ours.low) == ("success", 50.0, pytest.approx(40.0))
    assert returns.ours is not None
    assert (returns.unit, returns.ours.mean, returns.ours.episodes) == ("return", 100.0, 30)
    assert returns.status == "other demonstrations"


def test_errors_have_an_interval_over_seeds() -> None:
    record = Record("reconstruction", {}, [], {}, {"mse": [0.01, 0.02, 0.03]}, "cpu", 0.0)
    found = read_value(record, "mse")
    assert found.mean == pytest.approx(0.02)
    assert 0.01 <= found.low < 0.02 < found.high <= 0.03
    assert found.seeds == 3


def test_measurements_have_different_identities() -> None:
    experiment, options = EXPERIMENTS["noise-injection"], RunOptions()
    keys = [identify_measurement(experiment.name, m, options).key for m in experiment.measurements]
    assert len({*keys}) == len(keys)
    assert (
        RecordIndex([]).failure_reason(identify_measurement("x", Measurement("field", "x", task="maze"), options))
        is None
    )


def test_negative_numbers_have_the_same_sign_as_negative_differences() -> None:
    assert format_number(-377.1, "return") == format_signed(-377.1, "return") == "−377.1"
    assert format_number(1e-7, "loss") == "1e-07"
