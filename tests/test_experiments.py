import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Command
from diffclone import methods
from diffclone.errors import InvalidSettings, MissingPackage
from diffclone.experiments import EXPERIMENTS, PRESETS, diffusion_measures, paper
from diffclone.experiments import execute as executing
from diffclone.experiments.choices import Options, method_of, preset_of
from diffclone.experiments.compare import half_width, judged, read_printed, sheets, verdict_of
from diffclone.experiments.content import Found, cell_content, content_of, measure_content
from diffclone.experiments.cost import UPDATES, costs
from diffclone.experiments.derive import combine
from diffclone.experiments.execute import Place, Watch, do
from diffclone.experiments.material import QUICK_PAIRS, Material
from diffclone.experiments.measures import MEASURES
from diffclone.experiments.plan import Job, chosen, episodes_of, narrowed, plan, seeds_of
from diffclone.experiments.pool import groups, parted
from diffclone.experiments.results import MeasuredValue, PrintedValue
from diffclone.experiments.specification import (
    DataChanges,
    Experiment,
    Measurement,
    SettingsSource,
    TableCell,
    Variant,
)
from diffclone.experiments.subject import Subject
from diffclone.experiments.values import read_error
from diffclone.fit import FitOptions, fit
from diffclone.guides import DiffusionGuide
from diffclone.methods import METHODS
from diffclone.model import Dims, Training
from diffclone.nn import Network
from diffclone.records import Record
from diffclone.rng import Rng
from diffclone.settings import to_dict
from diffclone.tasks import TASKS
from diffclone.training.runs import Run, train_run

SOURCES: tuple[SettingsSource, ...] = ("ours", "paper", "release")
FOURTEEN = [
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
]
BC = TableCell("BC", "success", Variant("spiral", "bc"), options={"start_noise": 0.01})
DBC = TableCell("DBC", "success", Variant("spiral", "dbc"), options={"start_noise": 0.01})
ONCE, SMALL = Training(updates=1), Network(width=8, depth=1)
TINY = Experiment("tiny", "Tiny", "Of the test.", cells=(BC, DBC))


def arms(experiment: Experiment) -> list[tuple[Variant, Any]]:
    """Each arm with the members that are asked for."""
    measured = [(m.variant, m.select) for m in experiment.measurements if m.variant is not None]
    return [*((cell.variant, cell.select) for cell in experiment.cells), *measured]


def printed_paths(experiment: Experiment) -> list[str]:
    entries = (*experiment.cells, *experiment.measurements, *experiment.derived)
    return [entry.paper_key for entry in entries if entry.paper_key is not None]


def numbers(table: dict[str, Any], path: str = "") -> Iterator[str]:
    """Where the numbers of paper.toml are."""
    for key, value in table.items():
        if isinstance(value, dict) and "mean" not in value:
            yield from numbers(value, f"{path}{key}.")
        elif not isinstance(value, str):
            yield f"{path}{key}"


def played(cell: TableCell, options: Options, **changes: Any) -> Record:
    """What playing a cell would give."""
    seeds, count = seeds_of(options), options.episodes or episodes_of(cell.variant.task)
    data = Material(options).real(cell.variant.task, cell.variant.data)
    results = {
        "task": cell.variant.task,
        "protocol": "fixed",
        "starts": "evaluation",
        "options": dict(cell.options),
        "episodes": count,
        "success_rate": 0.5,
        "success_interval": [0.4, 0.6],
        "mean_return": 100.0,
        "return_interval": [90.0, 110.0],
    }
    record = Record(
        kind="evaluation",
        settings=to_dict(method_of(cell.variant, options.source, quick=options.quick)),
        members=[{"seed": seed, **cell.select} for seed in seeds],
        data={"fingerprint": data.fingerprint, "meta": {}},
        results=results | changes.pop("results", {}),
        device="cpu",
        seconds=1.0,
        quick=options.quick,
    )
    return Record(**json.loads(json.dumps(dataclasses.asdict(dataclasses.replace(record, **changes)))))


def to_play(jobs: list[Job]) -> int:
    return sum(len(job.plays) for job in jobs)


def test_there_are_the_papers_fourteen() -> None:
    assert list(EXPERIMENTS) == FOURTEEN


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_spec_names_what_there_is(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert experiment.name == name
    assert experiment.title
    assert experiment.about
    assert experiment.cells or experiment.measurements
    for source in SOURCES:
        for arm, where in arms(experiment):
            method = method_of(arm, source)
            assert preset_of(arm, source) in PRESETS
            assert {*where} == {*arm.vary}, "a number is of one setting"
            assert all(value in arm.vary[field] for field, value in where.items())
            assert dataclasses.is_dataclass(method)
    for cell in experiment.cells:
        assert TASKS[cell.variant.task].check_options(cell.options) == cell.options
    for measure in experiment.measurements:
        assert measure.kind in MEASURES
        assert (measure.variant is None) != (measure.task is None)
    places = [(cell.row, cell.column) for cell in experiment.cells]
    assert len({*places}) == len(places)
    assert len({(m.kind, m.label) for m in experiment.measurements}) == len(experiment.measurements)
    for path in printed_paths(experiment):
        assert read_printed(path) is not None


def test_all_that_the_paper_prints_of_an_experiment_is_shown() -> None:
    sections = {section: table for section, table in paper().items() if section in EXPERIMENTS}
    printed = {path for section, table in sections.items() for path in numbers(table, f"{section}.")}
    used = {path for experiment in EXPERIMENTS.values() for path in printed_paths(experiment)}
    assert used == printed


def test_whose_settings_are_taken() -> None:
    assert preset_of(Variant("maze", "dbc"), "ours") == "maze/dbc/best"
    assert preset_of(Variant("walker", "dbc"), "ours") == "walker/dbc/brief"
    assert preset_of(Variant("maze", "dbc", preset="brief"), "ours") == "maze/dbc/brief"
    assert preset_of(Variant("maze", "dbc", preset="brief"), "paper") == "maze/dbc/paper"
    assert preset_of(Variant("maze", "dbc", guide="gan", preset="paper"), "ours") == "maze/dbc/paper-gan"
    assert preset_of(Variant("maze", "dbc"), "release") == "maze/dbc/release"
    assert preset_of(Variant("maze", "ibc"), "release") == "maze/ibc/paper"
    assert preset_of(Variant("spiral", "bc"), "paper") == "spiral/bc/brief"


def test_what_was_done_is_not_done_again() -> None:
    options = Options(seeds=3)
    assert to_play(plan([TINY], options, [])) == 2
    done = [played(BC, options)]
    (left,) = plan([TINY], options, done)
    assert left.variant == DBC.variant
    assert plan([TINY], options, [*done, played(DBC, options)]) == []


def test_more_seeds_and_episodes_count_and_fewer_do_not() -> None:
    only = Experiment("one", "One", "Of the test.", cells=(BC,))
    more = [played(BC, Options(seeds=8, episodes=300))]
    assert plan([only], Options(), more) == []
    assert to_play(plan([only], Options(seeds=9), more)) == 1
    assert to_play(plan([only], Options(episodes=301), more)) == 1


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
def test_a_record_of_something_else_does_not_count(other: dict[str, Any]) -> None:
    only = Experiment("one", "One", "Of the test.", cells=(BC,))
    assert plan([only], Options(), [played(BC, Options())]) == []
    assert to_play(plan([only], Options(), [played(BC, Options(), **other)])) == 1


def test_a_record_of_plain_commands_counts(tmp_path: Path, diffclone: Command) -> None:
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
    content = cell_content(BC, Options(quick=True), Material(Options(quick=True)))
    assert content_of(record) == dataclasses.replace(content, quick=False)


def test_members_of_a_stack_are_the_same_as_those_trained_apart() -> None:
    stacked = TableCell("3", "", Variant("maze", "dbc", vary={"coefficient": (0.0, 3.0)}), select={"coefficient": 3.0})
    apart = TableCell("3", "", Variant("maze", "dbc", overrides={"coefficient": 3.0}))
    options = Options()
    assert content_of(played(stacked, options)) == cell_content(apart, options, Material(options))
    both = Experiment("both", "Both", "Of the test.", cells=(stacked, dataclasses.replace(apart, row="apart")))
    assert to_play(plan([both], options, [])) == 1


def test_settings_from_before_a_field_was_added_count() -> None:
    record = played(BC, Options())
    older = {**record.settings, "training": {k: v for k, v in record.settings["training"].items() if k != "ema"}}
    assert content_of(dataclasses.replace(record, settings=older)) == content_of(record)


def test_generated_pairs_are_known_by_how_they_are_made() -> None:
    cell = TableCell("both", "success", Variant("maze", "bc", data=DataChanges(generated=1.0)))
    options = Options()
    wanted = cell_content(cell, options, Material(options))
    assert wanted.data["steps"] == TASKS["maze"].demonstrations().num_steps
    added = {"steps": wanted.data["steps"], "meta": {"generated": wanted.data["generated"]}}
    same = played(cell, options, data={"fingerprint": "any", "meta": {"joined": [added]}})
    assert content_of(same) == wanted
    fewer = played(cell, options, data={"fingerprint": "any", "meta": {"joined": [{**added, "steps": 5}]}})
    assert content_of(fewer) != wanted


def test_shared_trainings_are_planned_once() -> None:
    every = plan(list(EXPERIMENTS.values()), Options(), [])
    names = [job.name for job in every]
    assert len({*names}) == len(names)
    contents = [wanted.content.key for job in every for wanted in (*job.plays, *job.looks)]
    assert len({*contents}) == len(contents)
    main, sizes = (plan([EXPERIMENTS[name]], Options(), []) for name in ("main-table", "dataset-size"))
    both = plan([EXPERIMENTS["main-table"], EXPERIMENTS["dataset-size"]], Options(), [])
    assert len(both) == len(main) + len(sizes) - 4
    pick = [job for job in every if job.preset == "fetch-pick/bc/best"]
    assert [len(job.plays) for job in pick] == [5], "the main table's policies play the study of generalisation"


def test_only_some_tasks_and_methods() -> None:
    assert chosen("maze", "bc", ())
    assert chosen("maze", "bc", ("maze", "walker", "bc"))
    assert not chosen("maze", "dbc", ("maze", "bc"))
    assert not chosen("walker", "bc", ("maze", "bc"))
    assert not chosen("maze", None, ("bc",))
    narrow = narrowed(EXPERIMENTS["inference"], ("dbc", "ibc"))
    assert [measure.label for measure in narrow.measurements] == ["Implicit BC", "DBC"]
    assert [entry.row for entry in narrow.derived] == ["DBC over Implicit BC"]
    (job,) = plan([EXPERIMENTS["main-table"]], Options(only=("maze", "bc")), [])
    assert job.preset == "maze/bc/best"
    with pytest.raises(InvalidSettings, match="neither"):
        plan([TINY], Options(only=("labyrinth",)), [])


def test_jobs_that_share_a_guide_go_to_one_worker() -> None:
    jobs = plan([EXPERIMENTS["main-table"], EXPERIMENTS["guides"]], Options(only=("maze",)), [])
    together = next(group for group in groups(jobs) if any(job.preset == "maze/dbc/best" for job in group))
    assert {job.preset for job in together} == {"maze/dbc/best", "maze/dbc/brief"}
    assert sum(len(group) for group in groups(jobs)) == len(jobs)


def test_what_takes_the_time_is_done_alone() -> None:
    jobs = plan([EXPERIMENTS["inference"], EXPERIMENTS["main-table"]], Options(only=("maze",)), [])
    together, alone = parted(jobs)
    assert [len(job.plays) for job in together] == [1] * 4
    assert not any(job.looks for job in together)
    assert [[look.measure.kind for look in job.looks] for job in alone] == [["inference"]] * 4
    assert not any(job.plays for job in alone)


def test_costs_are_of_rates_measured_before_where_there_are_any() -> None:
    jobs = plan([TINY], Options(), [])
    bc, dbc = costs(jobs, [], "cpu")
    assert not bc.measured
    assert dbc.seconds > sum(jobs[1].stages.values()) / UPDATES["cpu"]
    settings = to_dict(method_of(BC.variant, "ours"))
    training = Record("training", settings, [], {}, {}, "cpu", seconds=10.0)
    evaluation = Record("evaluation", settings, [], {}, {"task": "spiral", "episodes_per_second": 50.0}, "cpu", 1.0)
    (known, _) = costs(jobs, [training, evaluation], "cpu")
    assert known.measured
    assert known.seconds == pytest.approx(10.0 + 500 / 50.0)
    assert costs(jobs, [training, evaluation], "cuda")[0].measured is False


# What is done.


def work(jobs: list[Job], options: Options, out: Path, watch: Watch | None = None) -> list[Record]:
    place, made = Place(out, "cpu", None), list[Record]()
    for job in jobs:
        do(job, options, place, made.append, watch or Watch())
    return made


def test_a_failure_is_recorded_and_the_rest_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(quick=True)
    evaluate = executing.evaluate

    def broken(policy: Any, task: str, **settings: Any) -> Any:
        if type(policy.method).__name__ == "BC":
            raise MissingPackage("the task needs what is not there.")
        return evaluate(policy, task, **settings)

    monkeypatch.setattr(executing, "evaluate", broken)
    made = work(plan([TINY], options, []), options, tmp_path)
    assert sorted(record.kind for record in made) == ["evaluation", "failure", "training", "training"]
    (sheet,) = sheets([TINY], made)
    assert [cell.verdict for cell in sheet.cells] == ["failed", "not printed"]
    assert sheet.cells[0].reason == "the task needs what is not there."

    monkeypatch.setattr(executing, "evaluate", evaluate)
    again = plan([TINY], options, made)
    assert [job.variant for job in again] == [BC.variant], "what failed is tried again, and nothing else"
    more = work(again, options, tmp_path)
    assert [record.kind for record in more] == ["evaluation"], "the training was finished"
    (sheet,) = sheets([TINY], [*made, *more])
    assert [cell.verdict for cell in sheet.cells] == ["not printed", "not printed"]


def test_a_training_that_cannot_be_done_fails_what_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory\nand more lines")

    monkeypatch.setattr(executing, "train_run", broken)
    options = Options(quick=True)
    made = work(plan([TINY, EXPERIMENTS["manifold"]], options, []), options, tmp_path)
    reasons = {record.results["reason"] for record in made if record.kind == "failure"}
    assert reasons == {"training: RuntimeError: out of memory"}
    (sheet,) = sheets([EXPERIMENTS["manifold"]], made)
    assert [cell.verdict for cell in sheet.cells] == ["failed"] * 3
    assert [r.results["label"] for r in sheet.measured["trajectories"]] == ["expert"], "it needs no training"


def test_an_interrupted_job_goes_on_where_it_stopped(tmp_path: Path) -> None:
    options = Options(quick=True)
    calls: list[int] = []

    def stop() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    (job,) = plan([TINY], options, [])[1:]
    place, made = Place(tmp_path, "cpu", None), list[Record]()
    with pytest.raises(KeyboardInterrupt):
        do(job, options, place, made.append, Watch(stop=stop))
    assert made == []
    assert (tmp_path / "runs" / job.name / "checkpoints" / "guide.safetensors").exists()
    begun: list[str] = []
    do(job, options, place, made.append, Watch(training=lambda name, now: begun.append(f"{now.stage} {now.update}")))
    assert [record.kind for record in made] == ["training", "evaluation"]
    assert "guide 64" not in begun, "the guide was finished"
    assert not (tmp_path / "runs" / job.name / "checkpoints").exists(), "a finished training needs none"


# What came out.


def value(mean: float, half: float, *, quick: bool = False) -> MeasuredValue:
    return MeasuredValue(mean, mean - half, mean + half, 5, 100, played(BC, Options(quick=quick)))


def test_the_rule_of_verdicts() -> None:
    printed = PrintedValue(95.4, 1.7, 3)
    assert half_width(printed) == pytest.approx(4.302652729696142 * 1.7 / math.sqrt(3))  # 4.223
    # √(1.2² + 4.223²) = 4.390
    assert verdict_of(value(91.1, 1.2), printed, "success") == "agrees"
    assert verdict_of(value(90.9, 1.2), printed, "success") == "short"
    assert verdict_of(value(99.9, 1.2), printed, "success") == "better"
    assert verdict_of(value(0.03, 0.001), PrintedValue(0.02, None, None), "mse") == "short"
    assert verdict_of(value(0.01, 0.001), PrintedValue(0.02, None, None), "mse") == "better"
    assert verdict_of(value(0.0205, 0.001), PrintedValue(0.02, None, None), "mse") == "agrees"
    assert verdict_of(value(20.0, 1.0), PrintedValue(26.1, None, None), "drop") == "better"


def test_verdicts_of_what_cannot_be_compared() -> None:
    printed = PrintedValue(95.4, 1.7, 3)
    good = judged("r", "c", "success", value(99.9, 1.2), printed, None)
    assert (good.verdict, good.by) == ("better", pytest.approx(4.5))
    quick = judged("r", "c", "success", value(99.9, 1.2, quick=True), printed, None)
    assert (quick.verdict, quick.by) == ("not comparable", None)
    assert judged("r", "c", "episodes/s", value(9.0, 0.0), printed, None).verdict == "not comparable"
    assert judged("r", "c", "success", value(9.0, 0.0), None, None).verdict == "not printed"
    assert judged("r", "c", "success", None, printed, None).verdict == "not run"
    failed = judged("r", "c", "success", None, printed, "no such package")
    assert (failed.verdict, failed.reason) == ("failed", "no such package")
    # A ratio says something about demonstrations, and the bundled ones are not the paper's, whatever it is.
    ratio = value(0.33, 0.01)
    assert judged("r", "c", "ratio", ratio, PrintedValue(0.331, None, None), None).verdict == "not comparable"
    theirs = dataclasses.replace(
        ratio, record=dataclasses.replace(ratio.record, data={"fingerprint": "of another file"})
    )
    assert judged("r", "c", "ratio", theirs, PrintedValue(0.331, None, None), None).verdict == "agrees"


def test_derived_numbers() -> None:
    assert combine("difference", (90.0, 3.0), (92.0, 4.0)) == (pytest.approx(2.0), pytest.approx(5.0))
    assert combine("drop", (80.0, 0.0), (60.0, 0.0)) == (pytest.approx(25.0), 0.0)
    assert combine("drop", (80.0, 8.0), (60.0, 0.0)) == (pytest.approx(25.0), pytest.approx(7.5))
    assert combine("drop", (80.0, 8.0), (0.0, 4.0)) == (pytest.approx(100.0), pytest.approx(5.0))
    assert combine("times", (30.0, 3.0), (10.0, 0.0)) == (pytest.approx(3.0), pytest.approx(0.3))


def test_the_drop_is_computed_from_both_ends() -> None:
    experiment, options = EXPERIMENTS["generalization"], Options()
    rates = {"1": 0.8, "2": 0.6}
    records = [
        played(cell, options, results={"success_rate": rates.get(cell.column, 0.7)}) for cell in experiment.cells
    ]
    (sheet,) = sheets([experiment], records)
    drops = [cell for cell in sheet.cells if cell.column == "drop from 1 to 2"]
    assert [cell.row for cell in drops] == ["BC", "Implicit BC", "Diffusion Policy", "DBC"]
    for cell in drops:
        assert cell.ours is not None
        assert cell.ours.mean == pytest.approx(25.0)
    assert [cell.printed.mean for cell in drops if cell.printed] == [27.0, 71.6, 35.3, 26.1]
    (empty,) = sheets([experiment], [])
    assert {cell.verdict for cell in empty.cells} == {"not run"}
    (half,) = sheets([experiment], records[: len(records) // 4 - 1])  # BC's without the last
    assert {cell.verdict for cell in half.cells if cell.column == "drop from 1 to 2"} == {"not run"}
    nothing = [played(cell, options, results={"success_rate": 0.0}) for cell in experiment.cells]
    (lost,) = sheets([experiment], nothing)
    reasons = {cell.reason for cell in lost.cells if cell.column == "drop from 1 to 2"}
    assert reasons == {"of nothing, 0"}


def test_the_largest_record_is_shown_then_the_newest() -> None:
    small, large = played(BC, Options(seeds=3)), played(BC, Options(seeds=8))
    newer = dataclasses.replace(large, when="2999-01-01T00:00:00+00:00")
    quick = played(BC, Options(quick=True))
    for records in ([small, large], [large, small]):
        (sheet,) = sheets([TINY], records)
        assert sheet.cells[0].ours is not None
        assert sheet.cells[0].ours.seeds == 8
    (sheet,) = sheets([TINY], [newer, large, quick])
    assert sheet.cells[0].ours is not None
    assert sheet.cells[0].ours.record is newer
    assert not sheet.quick
    (sheet,) = sheets([TINY], [quick])
    assert sheet.quick


def test_success_is_in_percent_and_returns_are_as_they_are() -> None:
    runner = TableCell("BC", "Walker", Variant("walker", "bc"), paper_key="main-table.walker.bc")
    experiment = Experiment("one", "One", "Of the test.", cells=(BC, runner))
    (sheet,) = sheets([experiment], [played(BC, Options()), played(runner, Options())])
    success, returns = sheet.cells
    assert success.ours is not None
    assert (success.unit, success.ours.mean, success.ours.low) == ("success", 50.0, pytest.approx(40.0))
    assert returns.ours is not None
    assert (returns.unit, returns.ours.mean, returns.ours.episodes) == ("return", 100.0, 30)
    assert returns.verdict == "short"


def test_errors_have_an_interval_over_seeds() -> None:
    record = Record("reconstruction", {}, [], {}, {"mse": [0.01, 0.02, 0.03]}, "cpu", 0.0)
    found = read_error(record)
    assert found.mean == pytest.approx(0.02)
    assert 0.01 <= found.low < 0.02 < found.high <= 0.03
    assert found.seeds == 3


def test_failures_of_measures_are_told_apart() -> None:
    experiment, options = EXPERIMENTS["noise-injection"], Options()
    contents = [measure_content(experiment.name, m, options, Material(options)).key for m in experiment.measurements]
    assert len({*contents}) == len(contents)
    assert (
        Found([]).reason(measure_content("x", Measurement("field", "x", task="maze"), options, Material(options)))
        is None
    )


def trained_on_spiral(folder: Path) -> Subject:
    """A small diffusion model that has learned something."""
    guide = DiffusionGuide(training=Training(updates=320, lr=1e-2), width=64, steps=50)
    method = methods.DBC(
        training=Training(updates=32), network=Network(width=16, depth=1), coefficient=1.0, guide=guide
    )
    demos = TASKS["spiral"].demonstrations()
    run = train_run(
        folder, method, demos, FitOptions(seeds=[0, 1], vary={"imitation": [0.0, 1.0]}, device="cpu"), task="spiral"
    )
    return Subject("spiral", {}, demos, demos, run, run.policy(), [2, 3], quick=False)


def test_what_is_measured_of_a_diffusion_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffusion_measures, "STATES", 64)
    subject = trained_on_spiral(tmp_path / "run")
    found = MEASURES["reconstruction"](subject).results
    blind = float(subject.demos.act.var(0).mean())
    assert len(found["mse"]) == 2
    assert max(found["mse"]) < 0.7 * blind, "the state says something about the action"
    assert found["action_noise"] == 0.0
    noisy = dataclasses.replace(subject, demos=subject.demos.with_action_noise(0.05))
    assert MEASURES["reconstruction"](noisy).results["mse"] == found["mse"], "it is compared with the clean actions"
    assert MEASURES["reconstruction"](noisy).results["action_noise"] == 0.05
    samples = MEASURES["samples"](noisy).results
    assert not np.isin(np.unique(np.round(samples["expert"], 3)), [0.5, 0, -0.7]).all(), "noise is shown where it is"
    curves = MEASURES["curves"](subject).results
    assert np.array(curves["losses"]["L_DM"]).shape == (len(curves["updates"]), 2)
    lines = (subject.trained()[0].metrics).read_text().splitlines()
    last = json.loads(lines[-1])
    assert curves["losses"]["L_BC"][-1] == [round(last["L_BC"][member], 6) for member in subject.members]


def test_a_field_points_to_where_pairs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an exact denoiser of pairs around one position."""
    from diffclone.tasks.maze import CELLS

    demos = TASKS["maze"].demonstrations()
    place = torch.tensor([2.0, 2.0])

    class Exact(torch.nn.Module):
        def forward(self, x_t: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            k = int(t.flatten()[0])
            middle = (place - normaliser.obs_mean[:2]) / normaliser.obs_std[:2]
            gap = torch.zeros_like(x_t)
            gap[..., :2] = x_t[..., :2] - model.signal[k] * middle
            return gap / model.noise[k]

    guide = DiffusionGuide(training=Training(updates=1), width=8, steps=100)
    method = methods.DBC(training=ONCE, network=SMALL, coefficient=1.0, guide=guide)
    policy = fit(method, demos, device="cpu")
    normaliser = policy.normaliser
    model = guide.init(Dims(6, 2), Rng([0])["init"])
    model.denoiser = Exact()  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(diffusion_measures, "weights", lambda *_: model)  # pyright: ignore[reportUnknownLambdaType]
    subject = Subject("maze", {}, demos, demos, Run(tmp_path), policy, [0], quick=True)
    found = MEASURES["field"](subject).results
    spots, arrows = np.array(found["positions"]), np.array(found["directions"])
    assert len(spots) == 25 * len(CELLS)
    np.testing.assert_allclose(spots + arrows, np.tile(place.numpy(), (len(spots), 1)), atol=2e-3)


# The command.


def test_quick_experiments_from_end_to_end(tmp_path: Path, diffclone: Command) -> None:
    flags = ["--quick", "--device", "cpu", "--out", tmp_path / "out", "--no-cache"]
    code, out, _ = diffclone("reproduce", "manifold", *flags, "--json")
    assert code == 0
    (sheet,) = json.loads(out)
    assert sheet["quick"]
    assert [cell["ours"]["seeds"] for cell in sheet["cells"]] == [2, 2, 2]
    (samples,) = sheet["measured"]["samples"]
    shapes = [np.array(samples["results"][key]).shape for key in ("states", "expert", "sampled")]
    assert shapes == [(20, 2)] * 3
    assert [r["results"]["label"] for r in sheet["measured"]["trajectories"]] == ["expert", "BC", "DM", "DBC"]
    assert np.array(sheet["measured"]["trajectories"][1]["results"]["paths"]).shape == (2, 160, 2)

    before = (tmp_path / "out" / "records.jsonl").read_text()
    code, out, err = diffclone("reproduce", "manifold", *flags)
    assert code == 0
    assert "Nothing is left to do" in err
    assert "says nothing about the methods" in out
    assert (tmp_path / "out" / "records.jsonl").read_text() == before
    code, out, _ = diffclone("reproduce", "manifold", *flags, "--plan", "--json")
    assert json.loads(out) == []


def test_generated_pairs_are_made_once_and_learned_from(tmp_path: Path, diffclone: Command) -> None:
    flags = ["--quick", "--device", "cpu", "--out", tmp_path / "out", "--no-cache", "--json"]
    code, out, err = diffclone("reproduce", "augmentation", *flags)
    assert code == 0, err
    real, both, gain = json.loads(out)[0]["cells"]
    assert both["ours"]["record"]["data"]["steps"] == real["ours"]["record"]["data"]["steps"] + QUICK_PAIRS
    assert gain["ours"]["mean"] == pytest.approx(both["ours"]["mean"] - real["ours"]["mean"])
    assert len(list((tmp_path / "out" / "data").iterdir())) == 1
    _, _, err = diffclone("reproduce", "augmentation", *flags)
    assert "Nothing is left to do" in err


def test_two_workers(tmp_path: Path, diffclone: Command) -> None:
    flags = ["--quick", "--only", "spiral,walker", "--workers", "2", "--out", tmp_path / "out", "--json"]
    code, out, err = diffclone("reproduce", "multimodality", *flags)
    assert code == 0, err
    (sheet,) = json.loads(out)
    ratios = [record["results"]["ratio"] for record in sheet["measured"]["multimodality"]]
    assert len(ratios) == 2
    assert all(0.1 < ratio <= 1 for ratio in ratios)


def test_a_file_instead_of_the_bundled_demonstrations(tmp_path: Path, diffclone: Command) -> None:
    demos = TASKS["spiral"].demonstrations().take([0, 1, 2])
    demos.save(tmp_path / "mine.npz")
    flags = ["--quick", "--only", "spiral", "--data", f"spiral={tmp_path / 'mine.npz'}", "--out", tmp_path / "out"]
    code, out, _ = diffclone("reproduce", "multimodality", *flags, "--json")
    assert code == 0
    (record,) = json.loads(out)[0]["measured"]["multimodality"]
    assert record["data"]["fingerprint"] == demos.fingerprint


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["multimodalty"], "did you mean 'multimodality'"),
        ([], "say what to run"),
        (["pixels", "--only", "pixel"], "neither"),
        (["pixels", "--seeds", "0"], "at least one seed"),
        (["pixels", "--workers", "0"], "at least one worker"),
        (["pixels", "--data", "car-racing"], "TASK=FILE"),
        (["pixels", "--data", "car=x.npz"], "unknown task"),
        (["pixels", "--data", "car-racing=nowhere.npz"], "nowhere.npz"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], said: str, tmp_path: Path, diffclone: Command) -> None:
    code, _, err = diffclone("reproduce", *arguments, "--out", tmp_path / "out")
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, diffclone: Command) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    code, _, err = diffclone("reproduce", "pixels", "--quick", "--out", tmp_path)
    assert code == 2
    assert "Nothing was changed" in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_plan_runs_nothing(tmp_path: Path, diffclone: Command) -> None:
    code, out, _ = diffclone("reproduce", "all", "--plan", "--device", "cuda", "--out", tmp_path / "out", "--json")
    assert code == 0
    planned = json.loads(out)
    assert len(planned) == len(plan(list(EXPERIMENTS.values()), Options(), []))
    assert all(job["seconds"] >= 0 for job in planned)
    assert not (tmp_path / "out").exists()


def test_a_training_goes_on_in_the_precision_it_began_with(tmp_path: Path, diffclone: Command) -> None:
    flags = ["gradient-field", "--quick", "--device", "cpu", "--out", tmp_path / "out", "--no-cache", "--json"]
    assert diffclone("reproduce", *flags, "--precision", "bfloat16")[0] == 0
    (tmp_path / "out" / "records.jsonl").unlink()
    code, out, err = diffclone("reproduce", *flags)
    assert code == 0, err
    (sheet,) = json.loads(out)
    assert len(sheet["measured"]["field"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_in_quick(name: str, tmp_path: Path, diffclone: Command) -> None:
    flags = ["--quick", "--device", "cpu", "--out", tmp_path / "out", "--no-cache", "--json"]
    code, out, err = diffclone("reproduce", name, *flags)
    assert code == 0, err
    (sheet,) = json.loads(out)
    # So little training may succeed in nothing, of which nothing can be lost.
    absent = {cell["reason"] for cell in sheet["cells"] if cell["ours"] is None}
    assert absent <= {"of nothing, 0"}
    count = sum(len(records) for records in sheet["measured"].values())
    assert count == len(EXPERIMENTS[name].measurements)
