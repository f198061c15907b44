import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Command, assert_error
from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.experiments.catalogue import claim_tests
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.interface import Callbacks
from diffclone.experiments.study import run as study_run
from diffclone.experiments.study.candidates import (
    CONTROLS,
    DISTURBED,
    FRESH_SEEDS,
    TUNED_METHODS,
    TUNING_SEEDS,
    build_method,
)
from diffclone.experiments.study.plan import (
    SETTINGS,
    STUDIES,
    Stage,
    StudyOptions,
    drop_finished,
    plan_study,
    split_episodes,
)
from diffclone.experiments.study.results import (
    Candidate,
    choose_candidate,
    chosen_estimate,
    difference,
    list_candidates,
    study_records,
    training_length,
    tuned_rows,
)
from diffclone.experiments.study.run import run_study
from diffclone.experiments.study.transfer import relative_scores, shared_configurations
from diffclone.fit import FitOptions, fit_with_options
from diffclone.methods import BC
from diffclone.model import Training
from diffclone.nn import Network
from diffclone.records import Record
from diffclone.reports.report import build_report
from diffclone.reports.training_length import draw_training_lengths
from diffclone.training.members import replace_fields

EVERYTHING = StudyOptions(STUDIES)


def study_record(
    snapshot: int,
    success: Sequence[str],
    members: Sequence[dict[str, Any]],
    study: str = "tuning",
    method: str = "BC",
    **results: Any,
) -> Record:
    """Return a Record as the study writes it."""
    starts = "validation" if study == "tuning" else "evaluation"
    return Record(
        kind="evaluation",
        settings={},
        members=[dict(member) for member in members],
        data={},
        results={
            "task": "maze",
            "study": study,
            "setting": "maze-25",
            "method": method,
            "snapshot": snapshot,
            "starts": starts,
            "episodes": len(success[0]),
            "fields": {},
            "chosen": None,
            "outcomes": {"success": list(success)},
            **results,
        },
        device="cpu",
        seconds=1.0,
    )


GRID = [{"seed": seed, "state_noise": noise} for noise in (0.0, 0.1) for seed in (0, 1)]


def test_the_choice_is_the_highest_mean_over_seeds_and_starts() -> None:
    records = [
        study_record(500, ["1100", "1000", "1110", "0000"], GRID),  # 37.5 and 37.5
        study_record(1000, ["1111", "0000", "1110", "1100"], GRID),  # 50 and 62.5
        study_record(2000, ["0000", "0000", "1111", "0001"], GRID),  # 0 and 62.5: longer
    ]
    candidates = list_candidates(records, "maze-25", "BC")
    assert [(c.snapshot, c.configuration["state_noise"], c.score) for c in candidates] == [
        (500, 0.0, 37.5),
        (500, 0.1, 37.5),
        (1000, 0.0, 50.0),
        (1000, 0.1, 62.5),
        (2000, 0.0, 0.0),
        (2000, 0.1, 62.5),
    ]
    best = choose_candidate(candidates)
    assert (best.snapshot, dict(best.configuration)) == (1000, {"state_noise": 0.1})


def test_scores_that_differ_by_rounding_are_equal() -> None:
    longer, shorter = Candidate({}, 4000, 85.83333333333334), Candidate({}, 2000, 85.83333333333333)
    assert choose_candidate([longer, shorter]) is shorter


def test_only_tuning_records_on_validation_starts_are_candidates() -> None:
    seeds = [{"seed": seed} for seed in (0, 1)]
    records = [
        study_record(500, ["10", "00"], seeds),
        study_record(1000, ["11", "11"], seeds, study="fresh"),
        study_record(1000, ["11", "11"], seeds, starts="evaluation"),
        study_record(1000, ["11", "11"], seeds, method="IBC"),
    ]
    assert [(c.snapshot, c.score) for c in list_candidates(records, "maze-25", "BC")] == [(500, 25.0)]


def test_a_shared_configuration_has_the_highest_mean_relative_score() -> None:
    grid = [{"seed": 0, "state_noise": noise} for noise in (0.0, 0.1)]
    outcomes = {"a": ["1110", "1100"], "b": ["1100", "1111"], "c": ["1111", "1110"]}  # 75 50, 50 100, 100 75
    records = [study_record(500, success, grid, setting=setting) for setting, success in outcomes.items()]
    scores = relative_scores(records, ["a", "b", "c"], ["BC"])
    (shared,) = shared_configurations(scores)
    # Noise 0 has 100, 50 and 100 percent of the best, noise 0.1 has 66.7, 100 and 75.
    assert (dict(shared.configuration), shared.relative) == ({"state_noise": 0.0}, {"a": 100, "b": 50, "c": 100})
    # Noise 0.1 is better on b and c (87.5 against 75) and on a and b (83.3 against 75), worse on a and c.
    assert shared.left_out == pytest.approx({"a": 200 / 3, "b": 50, "c": 75})
    assert not shared_configurations(scores, snapshot=1000)


def test_fields_of_a_stack_belong_to_the_configuration() -> None:
    records = [
        study_record(500, ["10"], [{"seed": 0, "training.lr": 1e-3}], fields={"width": width}) for width in (256, 512)
    ]
    found = [dict(c.configuration) for c in list_candidates(records, "maze-25", "BC")]
    assert found == [{"width": 256, "training.lr": 1e-3}, {"width": 512, "training.lr": 1e-3}]


def test_the_reported_row_is_the_chosen_snapshot_paired_with_bc() -> None:
    seeds = [{"seed": seed} for seed in (101, 100)]  # Records may have seeds in any order
    tuning = [{"seed": 0}]
    records = [
        study_record(500, ["1100"], tuning),
        study_record(500, ["1110"], tuning, method="DBC (paper)"),
        study_record(500, ["1000", "1100"], seeds, study="fresh", chosen=500),
        study_record(1000, ["1111", "1111"], seeds, study="fresh", chosen=500),
        study_record(500, ["1111", "1111"], seeds, study="fresh", method="DBC (paper)", chosen=1000),
        study_record(1000, ["1110", "1100"], seeds, study="fresh", method="DBC (paper)", chosen=1000),
    ]
    bc, dbc = tuned_rows(records)
    assert bc.reported is not None
    assert dbc.reported is not None
    assert dbc.minus_bc is not None
    assert (bc.tries, bc.tuning, bc.chosen.score, bc.minus_bc) == (1, (1, 4), 50.0, None)
    assert (bc.reported.mean, bc.reported.seeds) == (37.5, (100, 101))
    assert (dbc.reported.snapshot, dbc.reported.mean) == (1000, 62.5)
    assert (dbc.minus_bc.mean, dbc.minus_bc.seeds, dbc.minus_bc.starts) == (25.0, 2, 4)
    low, high = dbc.minus_bc.interval
    assert low <= 25.0 <= high
    curve = training_length(records, "fresh", "maze-25", "BC")
    assert [(point.snapshot, point.mean) for point in curve] == [(500, 37.5), (1000, 100.0)]
    (figure,) = draw_training_lengths(records)
    assert "BC: 37.5 at 500, 100.0 at 1,000." in figure.description
    files = build_report([], lengths=[figure])
    assert "figures/training-length-maze-25.svg" in files
    assert 'aria-labelledby="caption-training-length-maze-25"' in files["index.html"].decode()


def test_a_difference_uses_common_seeds_and_starts() -> None:
    first = study_record(500, ["11", "10"], [{"seed": 100}, {"seed": 101}], study="fresh", chosen=500)
    second = study_record(500, ["001", "111"], [{"seed": 101}, {"seed": 102}], study="fresh", chosen=500)
    ours, theirs = (chosen_estimate([record], "maze-25", "BC") for record in (first, second))
    assert ours is not None
    assert theirs is not None
    found = difference(ours, theirs)
    assert (found.mean, found.seeds, found.starts) == (50.0, 1, 2)


def test_a_curve_uses_the_starts_that_all_snapshots_have() -> None:
    seeds = [{"seed": 100}]
    records = [
        study_record(500, ["1000"], seeds, study="fresh", chosen=500),
        study_record(1000, ["11"], seeds, study="fresh", chosen=500),
    ]
    curve = training_length(records, "fresh", "maze-25", "BC")
    assert [(point.outcomes.shape[1], point.mean) for point in curve] == [(2, 50.0), (2, 100.0)]


def test_every_method_has_the_same_number_of_tries() -> None:
    assert {method.tries for method in TUNED_METHODS.values()} == {72}
    every = replace(EVERYTHING, methods=tuple(TUNED_METHODS))
    stages = [stage for stage in plan_study(every, []) if stage.study == "tuning"]
    assert {stage.name for stage in stages} == {method.name for method in TUNED_METHODS.values()}
    planned: dict[tuple[str, str], int] = {}
    for stage in stages:
        key = (stage.setting.name, stage.name)
        planned[key] = planned.get(key, 0) + stage.members // len(stage.seeds) * len(stage.episodes)
    assert {setting for setting, _ in planned} == set(SETTINGS)
    assert set(planned.values()) == {72}


def test_fresh_seeds_and_starts_are_never_those_of_tuning() -> None:
    assert not set(TUNING_SEEDS) & set(FRESH_SEEDS)
    stages = plan_study(EVERYTHING, finished_tuning("fetch-pick-27"))
    assert {stage.study for stage in stages} == {"tuning", "fresh", "controls"}
    for stage in stages:
        tuning = stage.study == "tuning"
        assert stage.starts == ("validation" if tuning else "evaluation")
        assert set(stage.seeds) <= set(TUNING_SEEDS if tuning else FRESH_SEEDS)


def finished_tuning(setting: str) -> list[Record]:
    """Return Records of a complete tuning of BC and DBC (paper), in which one try succeeds."""
    records: list[Record] = []
    options = StudyOptions(("tuning",), (setting,), ("bc", "dbc-paper"))
    for stage in plan_study(options, []):
        grid = [
            {"seed": seed, **dict(zip(stage.vary, values, strict=True))}
            for values in np.stack(np.meshgrid(*stage.vary.values(), indexing="ij"), -1).reshape(-1, len(stage.vary))
            for seed in stage.seeds
        ]
        for update, episodes in stage.episodes.items():
            best = update == 2000
            success = ["1" * episodes if best and k < 5 else "0" * episodes for k in range(len(grid))]
            more = {"setting": setting, "task": stage.setting.task}
            records.append(study_record(update, success, grid, method=stage.name, **more))
    return records


def test_fresh_stages_follow_the_choice() -> None:
    records = finished_tuning("fetch-pick-27")
    options = StudyOptions(STUDIES, ("fetch-pick-27",), ("bc", "dbc-paper"))
    stages = {stage.name: stage for stage in plan_study(options, records)}
    assert set(stages) == {"BC", "DBC (paper)", "BC, untuned", "DBC (paper), untuned", *CONTROLS} - {DISTURBED}
    tuned: Any = stages["DBC (paper)"].method
    assert (stages["DBC (paper)"].chosen, tuned.coefficient, tuned.training.lr, tuned.away) == (2000, 0.1, 1e-3, 0.0)
    assert stages["DBC (paper)"].episodes[2000] == 100
    control: Any = stages["DBC, shuffled pairs"].method
    assert replace_fields(control, {"guide.shuffle_pairs": False}) == stages["DBC (paper), untuned"].method
    incomplete = plan_study(options, [r for r in records if r.results["snapshot"] != 500])
    assert {stage.study for stage in incomplete if "untuned" not in stage.name} == {"tuning", "controls"}
    assert all(list(stage.episodes) == [500] for stage in incomplete if stage.study == "tuning")


SMALL = StudyOptions(("tuning",), ("fetch-pick-27",), tuple(TUNED_METHODS), small=True)


def test_methods_of_a_small_study_have_equally_many_tries() -> None:
    assert {SMALL.find_method(key).tries for key in TUNED_METHODS} == {8}
    for stage in plan_study(SMALL, []):
        assert (stage.seeds, set(stage.episodes.values()), stage.members) == ((0, 1), {12}, 4)


def test_a_small_study_trains_its_choice_to_the_chosen_length() -> None:
    options = replace(SMALL, methods=("bc",))
    (stage,) = plan_study(options, [])
    grid = [{"seed": seed, "state_noise": noise} for noise in (0.0, 0.1) for seed in (0, 1)]
    own: dict[str, Any] = {"setting": "fetch-pick-27", "task": "fetch-pick", "small": True}
    success = {update: ["1" * 12 if update == 1000 else "0" * 12] * 4 for update in stage.snapshots}
    records = [study_record(update, success[update], grid, **own) for update in stage.snapshots]
    (fresh,) = plan_study(options, records)
    assert (fresh.study, fresh.seeds, fresh.chosen) == ("fresh", FRESH_SEEDS[:8], 1000)
    assert (fresh.snapshots, fresh.episodes, fresh.method.training.updates) == ((1000,), {1000: 100}, 1000)
    (more,) = plan_study(replace(options, seeds=10), records)
    assert (more.seeds, more.chosen) == (FRESH_SEEDS[:10], 1000)


def test_small_and_full_studies_are_never_joined() -> None:
    small = study_record(500, ["0" * 12] * 4, GRID, small=True)
    with pytest.raises(InvalidSettings, match="Records of a small study; give another --out for a full one"):
        plan_study(StudyOptions(("tuning",), ("maze-25",), ("bc",)), [small])
    with pytest.raises(InvalidSettings, match="Records of a full study; give another --out for a small one"):
        plan_study(SMALL, [study_record(500, ["0" * 24] * 4, GRID)])


@pytest.mark.parametrize("names", [["controls"], ["tuning", "controls"]])
def test_some_studies_have_no_small_form(diffclone: Command, names: list[str], tmp_path: Path) -> None:
    error = "controls cannot be run with --small; run without it"
    assert_error(diffclone("reproduce", *names, "--small", "--out", tmp_path / "no"), error)


def test_small_excludes_the_settings_of_the_paper(diffclone: Command, tmp_path: Path) -> None:
    result = diffclone("reproduce", "guides", "--small", "--source", "paper", "--out", tmp_path / "no")
    assert_error(result, "--small and --source paper exclude each other; leave one of them out")


def test_what_small_claims_run(diffclone: Command, tmp_path: Path) -> None:
    result = diffclone("reproduce", "claims", "--small", "--plan", "--json", "--out", tmp_path / "no")
    rows = json.loads(result.out)
    trained = [row["name"] for row in rows if "study" not in row]
    assert len(trained) > 30
    assert all("-small" in name for name in trained)
    assert {row["setting"] for row in rows if "study" in row} == set(claim_tests.SETTINGS.values())


def test_a_record_counts_only_with_all_seeds_and_episodes() -> None:
    (stage,) = plan_study(StudyOptions(("tuning",), ("maze-25",), ("bc",)), [])
    members = [{"seed": k % 5} for k in range(60)]

    def left(record: Record) -> bool:
        return 500 in drop_finished(stage, [record]).episodes

    assert not left(study_record(500, ["0" * 24] * 60, members))
    assert left(study_record(500, ["0" * 23] * 60, members))
    assert left(study_record(500, ["0" * 24] * 60, [{"seed": k % 4} for k in range(60)]))
    assert left(study_record(500, ["0" * 24] * 60, members, fields={"width": 256}))


def make_demonstrations(episodes: int) -> Demonstrations:
    rng = np.random.default_rng(0)
    obs, act = rng.standard_normal((3 * episodes, 2)), rng.standard_normal((3 * episodes, 1))
    return Demonstrations.from_arrays(obs, act, episode_ends=list(range(3, 3 * episodes + 1, 3)))


@pytest.mark.parametrize(("episodes", "held_out"), [(1, 0), (4, 0), (5, 1), (6, 1), (27, 4)])
def test_tuning_holds_out_every_sixth_episode(episodes: int, held_out: int) -> None:
    demos = make_demonstrations(episodes)
    train, other = split_episodes(demos)
    assert (0 if other is None else other.num_episodes) == held_out
    assert train.num_episodes == episodes - held_out
    assert other is None or not train.find_shared_episodes(other)


def test_a_snapshot_is_the_policy_of_a_shorter_training() -> None:
    """This is what makes a snapshot a fair candidate."""
    demos = make_demonstrations(4)
    schedule = build_method("maze", "bc", (40, 64), {}).training
    long = BC(training=replace(schedule, updates=64), network=Network(width=8, depth=1))
    short = replace(long, training=replace(schedule, updates=40))
    snapshot = fit_with_options(long, demos, FitOptions(snapshots=(40,))).snapshots[40]
    trained = fit_with_options(short, demos, FitOptions()).policy
    for ours, theirs in zip(snapshot.net.parameters(), trained.net.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert schedule == Training(updates=64, lr=1e-3, decay="constant", eps=1e-12, ema=0.999)


QUICK = StudyOptions(("tuning", "training-length"), ("spiral-1",), ("bc",), quick=True)


def test_an_interrupted_study_resumes_and_repeats_nothing(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "cpu", None)
    saved: list[Record] = []

    def save(record: Record) -> None:
        record.append_to(workspace.records_file)
        saved.append(record)
        if len(saved) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(QUICK, workspace, Callbacks(save))
    assert run_study(QUICK, workspace, Callbacks(save)) == {}
    keys = [tuple(record.results[key] for key in ("setting", "method", "study", "snapshot")) for record in saved]
    assert len(keys) == len(set(keys)) == 6
    assert plan_study(QUICK, workspace.read_records()) == []
    assert list((tmp_path / "runs").iterdir()) == []
    records = workspace.read_records()
    (row,) = tuned_rows(records)
    (reported,) = [
        r for r in study_records(records, "fresh", "spiral-1", "BC") if r.results["snapshot"] == row.chosen.snapshot
    ]
    assert row.reported is not None
    assert reported.results["chosen"] == row.chosen.snapshot
    assert reported.settings["training"]["lr"] == row.chosen.configuration["training.lr"]


def test_members_in_worker_processes_have_the_same_outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(QUICK, studies=("training-length",))
    monkeypatch.setattr(study_run, "CHUNK_STEPS", 1)  # a chunk per member
    found: list[list[Record]] = []
    for workers in (1, 2):
        workspace = Workspace(tmp_path / str(workers), "cpu", None)
        records: list[Record] = []

        def save(record: Record, workspace: Workspace = workspace, records: list[Record] = records) -> None:
            record.append_to(workspace.records_file)
            records.append(record)

        run_study(options, workspace, Callbacks(save), workers)
        found.append(sorted(records, key=lambda record: record.results["snapshot"]))
    alone, parallel = found
    assert [r.results["outcomes"] for r in alone] == [r.results["outcomes"] for r in parallel]
    assert [r.members for r in parallel] == [[{"seed": 100}, {"seed": 101}]] * 2


def test_methods_with_chunks_are_tuned_in_the_same_way(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "cpu", None)
    options = replace(QUICK, studies=("tuning",), settings=("maze-25",), methods=("bc-chunks", "dbc-paper-chunks"))
    save = Callbacks(lambda record: record.append_to(workspace.records_file))
    assert run_study(options, workspace, save) == {}
    records = workspace.read_records()
    assert {r.results["method"] for r in records} == {"BC, chunks", "DBC (paper), chunks"}
    assert {(r.settings["horizon"], r.settings["execute"]) for r in records} == {(8, 4)}
    assert not any("selection" in r.results for r in records)  # metrics of single actions
    assert [row.method for row in tuned_rows(records) if row.reported] == ["BC, chunks", "DBC (paper), chunks"]


def test_a_stage_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = study_run.StudyRunner.train

    def train(self: study_run.StudyRunner, stage: Stage, *arguments: Any) -> Any:
        if stage.study == "tuning":
            raise ArithmeticError("no member has finite weights")
        return original(self, stage, *arguments)

    monkeypatch.setattr(study_run.StudyRunner, "train", train)
    workspace = Workspace(tmp_path, "cpu", None)
    failures = run_study(QUICK, workspace, Callbacks(lambda record: record.append_to(workspace.records_file)))
    assert list(failures.values()) == ["ArithmeticError: no member has finite weights"]
    assert [record.results["method"] for record in workspace.read_records()] == ["BC, untuned"] * 2


def test_the_command_runs_plans_and_checks_names(tmp_path: Path, diffclone: Command) -> None:
    flags = ["--quick", "--only", "spiral-1,bc", "--device", "cpu", "--no-cache", "--out", tmp_path / "out", "--json"]
    code, out, _ = diffclone("reproduce", "tuning", *flags, "--plan")
    assert code == 0
    assert [(row["study"], row["members"]) for row in json.loads(out)] == [("tuning", 4)]
    code, out, err = diffclone("reproduce", "tuning", *flags)
    assert code == 0, err
    (row,) = json.loads(out)["tuned"]
    assert (row["setting"], row["method"], row["tries"]) == ("spiral-1", "BC", 4)
    before = (tmp_path / "out" / "records.jsonl").read_text()
    assert diffclone("reproduce", "tuning", *flags).code == 0
    assert (tmp_path / "out" / "records.jsonl").read_text() == before
    assert_error(diffclone("reproduce", "tuning", "--only", "maze-26", "--out", tmp_path / "no"), "is neither")
    assert_error(diffclone("reproduce", "tuning", "--seeds", "17", "--out", tmp_path / "no"), "1 to 16 fresh seeds")
