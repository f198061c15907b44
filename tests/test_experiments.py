import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from diffclone.errors import InvalidSettings
from diffclone.experiments import EXPERIMENTS, PRESETS, paper
from diffclone.experiments.measure import MEASURES
from diffclone.experiments.paper import printed_value
from diffclone.experiments.plan import (
    UPDATES_PER_SECOND,
    Job,
    estimate_costs,
    filter_experiment,
    group_jobs,
    is_selected,
    plan,
    split_timed,
)
from diffclone.experiments.presets import preset_name, variant_method
from diffclone.experiments.record_index import identify_cell, identify_record
from diffclone.experiments.specification import DataChanges, Experiment, RunOptions, SettingsSource, TableCell, Variant
from diffclone.methods import METHODS
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS
from example_experiments import BC, DBC, TINY, evaluation_of

SOURCES: tuple[SettingsSource, ...] = ("ours", "paper", "release", "small")
NAMES = [
    "main-table",
    "multimodality",
    "generalization",
    "inference",
    "manifold",
    "noise-injection",
    "guides",
    "coefficient",
    "expert-term",
    "loss-curves",
    "dataset-size",
    "augmentation",
    "pixels",
    "gradient-field",
    "known-errors",
]


def list_variants(experiment: Experiment) -> list[tuple[Variant, Any]]:
    """Return each variant with the members that are selected."""
    measured = [(m.variant, m.select) for m in experiment.measurements if m.variant is not None]
    return [*((cell.variant, cell.select) for cell in experiment.cells), *measured]


def paper_keys(experiment: Experiment) -> list[str]:
    entries = (*experiment.cells, *experiment.measurements, *experiment.derived)
    return [entry.paper_key for entry in entries if entry.paper_key is not None]


def list_keys(table: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the keys of all numbers in paper.toml."""
    for key, value in table.items():
        if isinstance(value, dict) and "mean" not in value:
            yield from list_keys(value, f"{path}{key}.")
        elif not isinstance(value, str):
            yield f"{path}{key}"


def count_evaluations(jobs: list[Job]) -> int:
    return sum(len(job.evaluations) for job in jobs)


def test_all_experiments_of_the_paper_are_registered() -> None:
    assert list(EXPERIMENTS) == NAMES


@pytest.mark.parametrize("name", [name for name in PRESETS if "/small" in name])
def test_small_presets_are_small_and_otherwise_brief(name: str) -> None:
    small, brief = (to_dict(PRESETS[key].method) for key in (name, name.replace("/small", "/brief")))
    assert small["training"]["updates"] <= 12_000
    assert small.get("network", small).get("width") == 256
    for key in ("training", "guide", "network", "width", "counter_examples", "samples"):
        small.pop(key, None)
        brief.pop(key, None)
    assert small == brief, "λ, normalisation and the rest are the same"


def test_bc_beside_a_guide_has_the_schedule_of_its_policies() -> None:
    for guide in ("", "-energy", "-vae", "-gan"):
        dbc, bc = (PRESETS[f"maze/{method}/small{guide}"].method for method in ("dbc", "bc"))
        assert (bc.training, to_dict(bc)["network"]) == (dbc.training, to_dict(dbc)["network"])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_specifications_are_valid(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert experiment.name == name
    assert experiment.title
    assert experiment.about
    assert experiment.cells or experiment.measurements
    for source in SOURCES:
        for variant, select in list_variants(experiment):
            method = variant_method(variant, RunOptions(source=source))
            assert preset_name(variant, source) in PRESETS
            assert {*select} == {*variant.vary}, "a cell selects one value of each varied field"
            assert all(value in variant.vary[field] for field, value in select.items())
            assert dataclasses.is_dataclass(method)
    for cell in experiment.cells:
        assert TASKS[cell.variant.task].check_options(cell.options) == cell.options
    for measure in experiment.measurements:
        assert measure.kind in MEASURES
        assert (measure.variant is None) != (measure.task is None)
    places = [(cell.row, cell.column) for cell in experiment.cells]
    assert len({*places}) == len(places)
    assert len({(m.kind, m.label) for m in experiment.measurements}) == len(experiment.measurements)
    for path in paper_keys(experiment):
        assert printed_value(path) is not None


def test_every_printed_number_is_used() -> None:
    sections = {section: table for section, table in paper().items() if section in EXPERIMENTS}
    printed = {path for section, table in sections.items() for path in list_keys(table, f"{section}.")}
    used = {path for experiment in EXPERIMENTS.values() for path in paper_keys(experiment)}
    assert used == printed


def test_presets_of_each_source() -> None:
    assert preset_name(Variant("maze", "dbc"), "ours") == "maze/dbc/best"
    assert preset_name(Variant("walker", "dbc"), "ours") == "walker/dbc/brief"
    assert preset_name(Variant("maze", "dbc", preset="brief"), "ours") == "maze/dbc/brief"
    assert preset_name(Variant("maze", "dbc", preset="brief"), "paper") == "maze/dbc/paper"
    assert preset_name(Variant("maze", "dbc", guide="gan", preset="paper"), "ours") == "maze/dbc/paper-gan"
    assert preset_name(Variant("maze", "dbc"), "release") == "maze/dbc/release"
    assert preset_name(Variant("maze", "ibc"), "release") == "maze/ibc/paper"
    assert preset_name(Variant("spiral", "bc"), "paper") == "spiral/bc/brief"


def test_finished_results_are_not_planned() -> None:
    options = RunOptions(seeds=3)
    assert count_evaluations(plan([TINY], options, [])) == 2
    done = [evaluation_of(BC, options)]
    (left,) = plan([TINY], options, done)
    assert left.variant == DBC.variant
    assert plan([TINY], options, [*done, evaluation_of(DBC, options)]) == []


def test_a_record_needs_all_seeds_and_enough_episodes() -> None:
    only = Experiment("one", "One", "An experiment for tests.", cells=(BC,))
    more = [evaluation_of(BC, RunOptions(seeds=8, episodes=300))]
    assert plan([only], RunOptions(), more) == []
    assert count_evaluations(plan([only], RunOptions(seeds=9), more)) == 1
    assert count_evaluations(plan([only], RunOptions(episodes=301), more)) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"results": {"starts": "validation"}},
        {"results": {"protocol": "paper"}},
        {"results": {"options": {}}},
        {"results": {"task": "maze"}},
        {"quick": True},
        {"data": {"fingerprint": "0" * 16, "meta": {}}},
        {"members": [{"seed": seed, "coefficient": value} for seed in range(5) for value in (0.0, 1.0)]},
        {"settings": to_dict(METHODS["bc"]())},
        {"settings": {"type": "bc", "nonsense": 1}},
        {"kind": "training"},
    ],
    ids=lambda other: "-".join(other),
)
def test_other_records_are_not_used(other: dict[str, Any]) -> None:
    only = Experiment("one", "One", "An experiment for tests.", cells=(BC,))
    assert plan([only], RunOptions(), [evaluation_of(BC, RunOptions())]) == []
    assert count_evaluations(plan([only], RunOptions(), [evaluation_of(BC, RunOptions(), **other)])) == 1


def test_records_of_train_and_evaluate_are_used(tmp_path: Path, diffclone: Command) -> None:
    run = tmp_path / "run"
    brief = ["--training.updates", "64"]
    diffclone(
        "train",
        "spiral",
        "--method",
        "bc",
        "--preset",
        "brief",
        "--seeds",
        "2",
        "--device",
        "cpu",
        "--out",
        run,
        *brief,
    )
    diffclone("evaluate", run, "--episodes", "2", "--options", "start_noise=0.01", "--device", "cpu")
    (record,) = [r for r in Record.read_all(run / "records.jsonl") if r.kind == "evaluation"]
    content = identify_cell(BC, RunOptions(quick=True))
    assert identify_record(record) == dataclasses.replace(content, quick=False)


def test_a_member_of_a_stack_equals_one_trained_alone() -> None:
    stacked = TableCell("3", "", Variant("maze", "dbc", vary={"coefficient": (0.0, 3.0)}), select={"coefficient": 3.0})
    apart = TableCell("3", "", Variant("maze", "dbc", overrides={"coefficient": 3.0}))
    options = RunOptions()
    assert identify_record(evaluation_of(stacked, options)) == identify_cell(apart, options)
    both = Experiment(
        "both", "Both", "An experiment for tests.", cells=(stacked, dataclasses.replace(apart, row="apart"))
    )
    assert count_evaluations(plan([both], options, [])) == 1


def test_records_without_newer_settings_are_used() -> None:
    record = evaluation_of(BC, RunOptions())
    older = {**record.settings, "training": {k: v for k, v in record.settings["training"].items() if k != "ema"}}
    assert identify_record(dataclasses.replace(record, settings=older)) == identify_record(record)


def test_generated_pairs_are_identified_by_their_guide() -> None:
    cell = TableCell("both", "success", Variant("maze", "bc", data=DataChanges(generated=1.0)))
    options = RunOptions()
    wanted = identify_cell(cell, options)
    assert wanted.data["steps"] == TASKS["maze"].demonstrations().num_steps
    added = {"steps": wanted.data["steps"], "meta": {"generated": wanted.data["generated"]}}
    same = evaluation_of(cell, options, data={"fingerprint": "any", "meta": {"joined": [added]}})
    assert identify_record(same) == wanted
    fewer = evaluation_of(cell, options, data={"fingerprint": "any", "meta": {"joined": [{**added, "steps": 5}]}})
    assert identify_record(fewer) != wanted


def test_shared_trainings_are_planned_once() -> None:
    every = plan(list(EXPERIMENTS.values()), RunOptions(), [])
    names = [job.name for job in every]
    assert len({*names}) == len(names)
    contents = [wanted.identity.key for job in every for wanted in (*job.evaluations, *job.measurements)]
    assert len({*contents}) == len(contents)
    main, sizes = (plan([EXPERIMENTS[name]], RunOptions(), []) for name in ("main-table", "dataset-size"))
    both = plan([EXPERIMENTS["main-table"], EXPERIMENTS["dataset-size"]], RunOptions(), [])
    assert len(both) == len(main) + len(sizes) - 4
    pick = [job for job in every if job.preset == "fetch-pick/bc/best"]
    assert [len(job.evaluations) for job in pick] == [5], "generalisation evaluates the main table's policies"


def test_only_selects_tasks_and_methods() -> None:
    assert is_selected("maze", "bc", ())
    assert is_selected("maze", "bc", ("maze", "walker", "bc"))
    assert not is_selected("maze", "dbc", ("maze", "bc"))
    assert not is_selected("walker", "bc", ("maze", "bc"))
    assert not is_selected("maze", None, ("bc",))
    narrow = filter_experiment(EXPERIMENTS["inference"], ("dbc", "ibc"))
    assert [measure.label for measure in narrow.measurements] == ["Implicit BC", "DBC"]
    assert [entry.row for entry in narrow.derived] == ["DBC over Implicit BC"]
    (job,) = plan([EXPERIMENTS["main-table"]], RunOptions(only=("maze", "bc")), [])
    assert job.preset == "maze/bc/best"
    with pytest.raises(InvalidSettings, match="neither"):
        plan([TINY], RunOptions(only=("labyrinth",)), [])


def test_jobs_with_the_same_guide_are_grouped() -> None:
    jobs = plan([EXPERIMENTS["main-table"], EXPERIMENTS["guides"]], RunOptions(only=("maze",)), [])
    together = next(group for group in group_jobs(jobs) if any(job.preset == "maze/dbc/best" for job in group))
    assert {job.preset for job in together} == {"maze/dbc/best", "maze/dbc/brief"}
    assert sum(len(group) for group in group_jobs(jobs)) == len(jobs)


def test_measurements_of_time_run_alone() -> None:
    jobs = plan([EXPERIMENTS["inference"], EXPERIMENTS["main-table"]], RunOptions(only=("maze",)), [])
    together, alone = split_timed(jobs)
    assert [len(job.evaluations) for job in together] == [1] * 4
    assert not any(job.measurements for job in together)
    assert [[item.measurement.kind for item in job.measurements] for job in alone] == [["inference"]] * 4
    assert not any(job.evaluations for job in alone)


def test_costs_use_the_rates_of_records() -> None:
    jobs = plan([TINY], RunOptions(), [])
    bc, dbc = estimate_costs(jobs, [], "cpu")
    assert not bc.measured
    assert dbc.seconds > sum(jobs[1].updates.values()) / UPDATES_PER_SECOND["cpu"]
    settings = to_dict(variant_method(BC.variant, RunOptions()))
    training = Record("training", settings, [], {}, {}, "cpu", seconds=10.0)
    evaluation = Record("evaluation", settings, [], {}, {"task": "spiral", "episodes_per_second": 50.0}, "cpu", 1.0)
    (known, _) = estimate_costs(jobs, [training, evaluation], "cpu")
    assert known.measured
    assert known.seconds == pytest.approx(10.0 + 500 / 50.0)
    assert estimate_costs(jobs, [training, evaluation], "cuda")[0].measured is False


def test_run_folders_keep_the_names_of_version_0_1() -> None:
    jobs = plan([EXPERIMENTS["augmentation"], EXPERIMENTS["gradient-field"], EXPERIMENTS["pixels"]], RunOptions(), [])
    assert [job.name for job in jobs] == [
        "maze-bc-best-68236318",
        "maze-bc-best-generated-28cc96c7",
        "maze-dbc-best-b139d67d",
        "car-racing-bc-brief-d97fb7c3",
        "car-racing-dbc-brief-caf7a8fa",
    ]


def test_settings_that_no_longer_exist_match_nothing() -> None:
    record = evaluation_of(DBC, RunOptions())
    guide = {**record.settings["guide"], "t_sampling": "importance", "t_shares": [0.5, 0.5]}
    replaced = dataclasses.replace(record, settings={**record.settings, "guide": guide})
    stratified = {**record.settings["guide"], "t_sampling": "stratified"}
    other = dataclasses.replace(record, settings={**record.settings, "guide": stratified})
    assert identify_record(replaced) not in (identify_record(other), identify_record(record))


def test_a_registered_experiment_can_be_planned(
    tmp_path: Path, diffclone: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EXPERIMENTS, "_entries", {**EXPERIMENTS})
    EXPERIMENTS.register("tiny")(TINY)
    code, out, _ = diffclone("reproduce", "tiny", "--plan", "--json", "--out", tmp_path / "out")
    assert code == 0
    assert [job["name"] for job in json.loads(out)] == [job.name for job in plan([TINY], RunOptions(), [])]
