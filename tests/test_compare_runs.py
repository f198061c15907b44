"""`diffclone compare`: runs on the same starts, with differences, losses and settings."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Command, assert_error
from diffclone import BC, Demonstrations, Network, Training
from diffclone.cli.compare import leave_out_parts
from diffclone.experiments.run_comparison import (
    ComparedRun,
    compare_runs,
    differing_settings,
    find_evaluation,
    read_losses,
    read_outcomes,
)
from diffclone.fit import FitOptions
from diffclone.records import Record
from diffclone.reports.compare import comparison_page, describe_differences
from diffclone.reports.comparison_tables import format_mean, score_rows
from diffclone.statistics import Estimate, Table, difference_interval, estimate_contrast, holm
from diffclone.tasks import TASKS
from diffclone.training.runs import train_run

TINY = BC(training=Training(updates=64, batch=8), network=Network(width=8, depth=1))
RNG = np.random.default_rng(0)


def evaluation(outcomes: Table, seeds: Sequence[int], **results: Any) -> Record:
    known = outcomes.dtype == np.bool_
    values: dict[str, Any] = {
        "task": "maze" if known else "Pendulum-v1",
        "protocol": "fixed",
        "starts": "evaluation",
        "options": {},
        "episodes": outcomes.shape[1],
        "success_rate": float(outcomes.mean()) if known else None,
        "outcomes": {
            "success": ["".join("01"[int(s)] for s in row) for row in outcomes] if known else None,
            "returns": outcomes.astype(float).tolist(),
        },
    }
    members = [{"seed": seed} for seed in seeds]
    return Record("evaluation", {"type": "bc"}, members, {}, {**values, **results}, "cpu", 1.0)


def compared(name: str, outcomes: Table, seeds: Sequence[int], **settings: Any) -> ComparedRun:
    record = evaluation(outcomes, seeds)
    found, table = read_outcomes(record, outcomes.shape[1])
    return ComparedRun(name, record, found, table, settings, reused=False, losses={})


def test_differences_are_paired_and_corrected() -> None:
    base = RNG.random((6, 40)) < 0.5
    better, same = base | (RNG.random((6, 40)) < 0.6), RNG.random((6, 40)) < 0.5
    runs = [compared("a", base, range(6)), compared("b", better, range(6)), compared("c", same, range(6))]
    first, second = compare_runs(runs)
    assert first.paired
    assert np.isclose(first.estimate.mean, 100 * (better.mean() - base.mean()))
    expected = estimate_contrast([better, base], [100.0, -100.0], paired=True)
    assert first.interval == expected.interval()
    assert np.isclose(first.p, 2 * expected.p_above(0.0))
    assert [first.adjusted, second.adjusted] == holm([first.p, second.p])
    assert first.adjusted < 0.01
    assert second.adjusted > 0.05
    # The bootstrap of statistics.py, which resamples seeds and starts together, gives about the same interval.
    low, high = difference_interval(better, base)
    assert np.allclose(first.interval, (100 * low, 100 * high), atol=6)


def test_constant_differences_of_single_seeds_are_tested_over_the_starts() -> None:
    always, never = np.ones((1, 10), dtype=np.bool_), np.zeros((1, 10), dtype=np.bool_)
    for seeds in ([0], [1]):
        better, equal = compare_runs(
            [compared("a", never, [0]), compared("b", always, seeds), compared("c", never, seeds)]
        )
        assert (better.p, equal.p) == (2.0**-9, 1.0)


@pytest.mark.parametrize(
    ("seeds", "verdict"), [(2, "not distinguishable from"), (6, "better than"), (1, "better than")]
)
def test_the_sentence_does_not_claim_more_than_p(seeds: int, verdict: str) -> None:
    always, never = np.ones((seeds, 10), dtype=np.bool_), np.zeros((seeds, 10), dtype=np.bool_)
    runs = [compared("a", never, range(seeds)), compared("b", always, range(seeds))]
    found = compare_runs(runs)
    assert describe_differences(runs, found) == [f"B is {verdict} A (success, %, 95 % intervals)."]
    low, high = found[0].interval
    assert low < high
    assert (low > 0) == (found[0].p <= 0.05) == (verdict == "better than")
    sure = [replace(found[0], estimate=Estimate(100.0, 1.0, 9.0, seeds), p=0.5)]
    assert describe_differences(runs, sure) == ["B is not distinguishable from A (success, %, 95 % intervals)."]


def test_seeds_are_matched_by_their_number_not_by_their_order() -> None:
    returns = RNG.normal(size=(3, 20))
    runs = [compared("a", returns, (0, 1, 2)), compared("b", 1 + returns[[2, 0, 1]], (2, 0, 1))]
    (difference,) = compare_runs(runs)
    assert difference.paired
    assert np.isclose(difference.estimate.mean, 1)
    assert difference.estimate.error == 0  # the same difference everywhere
    (other,) = compare_runs([runs[0], compared("c", 1 + returns, (5, 6, 7))])
    assert not other.paired
    assert other.estimate.error > 0.01


def test_only_an_evaluation_that_fits_is_used_again() -> None:
    outcomes = RNG.random((2, 30)) < 0.5
    wanted: dict[str, Any] = {
        "members": [{"seed": 0}, {"seed": 1}],
        "settings": {"type": "bc"},
        "task": "maze",
        "options": {},
        "episodes": 20,
        "snapshot": None,
    }
    good = evaluation(outcomes, (0, 1))
    assert find_evaluation([good], **wanted) is good
    assert np.array_equal(read_outcomes(good, 20)[1], outcomes[:, :20])
    for other in (
        replace(good, kind="training"),
        replace(good, settings={"type": "dbc"}),
        evaluation(outcomes, (0, 2)),
        evaluation(outcomes[:, :19], (0, 1)),
        evaluation(outcomes, (0, 1), options={"start_noise": 2.0}),
        evaluation(outcomes, (0, 1), starts="validation"),
        evaluation(outcomes, (0, 1), protocol="paper"),
        evaluation(outcomes, (0, 1), snapshot=100),
        evaluation(outcomes, (0, 1), task="walker"),
        replace(good, results={**good.results, "outcomes": None}),
    ):
        assert find_evaluation([other], **wanted) is None
        assert find_evaluation([good, other], **wanted) is good


def test_settings_that_differ() -> None:
    outcomes = RNG.random((2, 5)) < 0.5
    runs = [
        compared("a", outcomes, (0, 1), method="bc", training={"lr": 0.1, "batch": 8}),
        compared("b", outcomes, (0, 1), method="dbc", training={"lr": 0.1, "batch": 9}, guide={"type": "vae"}),
    ]
    assert differing_settings(runs) == {"method": ["bc", "dbc"], "training.batch": ["8", "9"], "guide": ["", "vae"]}
    assert differing_settings([runs[0], runs[0]]) == {}


def test_the_terminal_leaves_out_the_fields_of_a_part_that_a_run_does_not_have() -> None:
    settings = {"method": ["bc", "dbc"], "guide": ["", "vae"], "guide.width": ["", "8"], "network.width": ["8", "9"]}
    assert list(leave_out_parts(settings)) == ["method", "guide", "network.width"]


def test_losses_of_training(tmp_path: Path) -> None:
    lines = [
        {"stage": "guide", "update": 1, "loss": [9.0]},
        {"stage": "policy", "update": 1, "loss": [3.0, 4.0], "L_BC": [1.0, 2.0], "held_out/L_BC": [5.0, 6.0]},
        {"stage": "policy", "update": 2, "loss": [3.0, 4.0], "L_BC": [0.5, 1.0]},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_losses(path)
    assert list(found) == ["L_BC, training", "L_BC, held-out"]
    assert found["L_BC, training"][0] == [1, 2]
    assert found["L_BC, training"][1].tolist() == [[1.0, 2.0], [0.5, 1.0]]
    assert found["L_BC, held-out"][0] == [1]
    assert read_losses(tmp_path / "none.jsonl") == {}


def test_numbers_are_short() -> None:
    assert format_mean(12.34, (-1.0, 25.67)) == "12.3 (-1.0 … 25.7)"
    assert format_mean(-1234.5, (-1300.2, -1100.9), sign="+") == "-1234 (-1300 … -1101)"


def test_the_page_has_figures_and_settings() -> None:
    outcomes = RNG.random((2, 5)) < 0.5
    runs = [
        compared("runs/<a>", outcomes, (0, 1), method="bc"),
        replace(
            compared("runs/b", ~outcomes, (0, 1), method="dbc"),
            losses={"L_BC, training": ([1, 2], np.array([[1.0, 2.0], [0.1, 0.2]]))},
        ),
    ]
    differences = compare_runs(runs)
    page = comparison_page(runs, differences, differing_settings(runs), {"about": 1})
    assert page.count("<svg") == 2  # the losses, for wide and for narrow screens
    assert page.count('class="track"') == 1
    assert "runs/&lt;a&gt;" in page
    assert all(value in page for row in score_rows(runs, differences) for value in row)
    assert "L_BC, training of B ends at 0.15" in page
    assert "No run recorded a held-out loss" in page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on Spiral and on a file with other sizes."""
    folder, demos = tmp_path_factory.mktemp("compared"), TASKS["spiral"].demonstrations()
    options = FitOptions(seeds=(0, 1), device="cpu", snapshots=(32,))
    train_run(folder / "a", TINY, demos, options, task="spiral")
    train_run(folder / "b", replace(TINY, network=Network(width=4, depth=1)), demos, options, task="spiral")
    train_run(folder / "one", TINY, demos, replace(options, seeds=(7,)), task="spiral")
    train_run(folder / "untold", TINY, demos, options)
    train_run(folder / "varied", TINY, demos, replace(options, vary={"training.lr": [1e-3, 1e-4]}), task="spiral")
    train_run(folder / "maze", TINY, replace(demos, meta={}), options, task="maze")
    obs = RNG.uniform(-1, 1, (60, 3)).astype(np.float32)
    other = Demonstrations.from_arrays(obs, obs[:, :1], episode_ends=[30, 60])
    train_run(folder / "other", TINY, other, options)
    return folder


def test_runs_are_compared_and_evaluated_once(
    diffclone: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    result = diffclone("compare", folder / "a", folder / "b", folder / "one", "--episodes", "4", "--out", page)
    assert result.code == 0, result.err
    assert page.read_text(encoding="utf-8").count('class="track"') == 2
    assert max(map(len, result.out.splitlines())) <= 80
    assert re.search(r"network\.width .* 8 .* 4 .* 8", result.out)
    assert "one: one seed, so the intervals cover other starts but not other seeds" in result.err
    records = [Record.read_all(folder / name / "records.jsonl")[-1] for name in ("a", "b", "one")]
    assert [record.results["episodes"] for record in records] == [4, 4, 4]

    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("evaluated again")

    monkeypatch.setattr("diffclone.cli.compare.evaluate", fail)
    again = diffclone("compare", folder / "a" / "policy", folder / "b", "--episodes", "3", "--json")
    known = json.loads(again.out)
    assert [run["recorded_before"] for run in known["runs"]] == [True, True]
    assert (known["task"], known["episodes"], known["differences"][0]["minus"]) == (
        "spiral",
        3,
        str(folder / "a/policy"),
    )
    means = [np.mean([row[:3] for row in record.results["outcomes"]["returns"]]) for record in records[:2]]
    if known["metric"] == "return":
        assert np.isclose(known["differences"][0]["mean"], means[1] - means[0])


def test_snapshots_are_compared(diffclone: Command, folder: Path) -> None:
    result = diffclone("compare", folder / "a", folder / "a/snapshots/32", "--episodes", "2", "--json")
    assert json.loads(result.out)["settings"] == {"snapshot": ["", "32"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a",), "compare takes 2 to 26 runs; it was given 1"),
        (("a", "c"), "c is not a run: there is no such folder"),
        (("a", "a/run.json"), "run.json is a file. Give the folder of a run; an exported policy belongs to one"),
        (("a", "."), "is not a run: it has no run.json"),
        (("a", "other"), "a maps 6 numbers to 2, .*other maps 3 to 1: they cannot act in the same environment"),
        (("a", "maze"), "a was trained for spiral, .*maze for maze. Choose one with --task or --env"),
        (("untold", "a"), "untold was trained on a file of no known task; add --env ID"),
        (("a", "varied"), r"varied differ in training\.lr \(0\.0001, 0\.001\); choose one value: --where"),
        (("a", "b", "--task", "spirale"), "unknown task 'spirale'; did you mean 'spiral'"),
        (("a", "b", "--where", "lr=1"), r"--where lr: members differ in seed\."),
        (("a", "b", "--episodes", "1"), "--episodes must be at least 2; it is 1"),
        (("a", "b", "--out", "page.pdf"), r"the page is written as \.html"),
    ],
)
def test_runs_that_cannot_be_compared_are_one_line(
    diffclone: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(folder)
    assert_error(diffclone("compare", *arguments), message)
