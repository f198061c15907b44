import json
import re
import time
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest

import diffclone
from conftest import Command
from diffclone.data import Demonstrations
from diffclone.errors import DiffcloneError, InvalidFile, InvalidSettings
from diffclone.files import write_json
from diffclone.fit import FitOptions
from diffclone.methods import BC, DBC, FlowMatching
from diffclone.model import Training
from diffclone.nn import Network
from diffclone.policy import Policy
from diffclone.training import Progress, search, search_plan
from diffclone.training.choice import RULE, Candidate, choose, describe_choice, list_candidates, scores
from diffclone.training.runs import train_run
from diffclone.training.search import SearchOptions, search_in_folder
from diffclone.training.search_pace import CLOSING, Deadline, OutOfTime, Pace, affordable
from diffclone.training.search_plan import DEFAULT_GRIDS, GRIDS, Grid, Rates, choose_grid, chosen_method, describe_grid
from test_selection import line_demonstrations

TINY = Grid(2, (32, 64), (1e-3,), (0.0, 0.1), (1.0,), (0.0, 1.0), 32, (48,))
RATES = Rates(
    stack={"bc": 1000.0, "flow-matching": 500.0, "dbc": 400.0},
    final={"bc": 500.0, "flow-matching": 250.0, "dbc": 200.0},
    guide=500.0,
    final_guide=250.0,
    score=0.5,
)


def candidate(updates: int, **metrics: float) -> Candidate:
    return Candidate("bc", {}, updates, metrics)


def test_the_choice_has_the_lowest_mean_logarithm() -> None:
    found = [candidate(1, a=1.0, b=8.0, error_absolute=1.0), candidate(2, a=2.0, b=2.0, error_absolute=1.0)]
    assert scores(found, ("a", "b")) == pytest.approx([np.log(4) / 2, np.log(2) / 2], abs=1e-6)
    assert choose(found, ("a", "b")) == 1
    assert choose(found, ("a",)) == 0


def test_equal_scores_choose_the_shortest_training() -> None:
    found = [candidate(4, error_absolute=1.0), candidate(2, error_absolute=1.0), candidate(3, error_absolute=1.0)]
    assert choose(found, ("error_absolute",)) == 1


def test_missing_metrics_and_diverged_candidates_are_left_out() -> None:
    found = [
        candidate(1, error_absolute=np.nan, track_10=0.1),
        candidate(2, error_absolute=2.0, track_10=0.5),
        candidate(3, error_absolute=1.0, track_10=np.nan),
    ]
    assert choose(found, ("error_absolute", "track_10")) == 2, "track_10 is not known for all"
    assert choose(found) == 2
    assert scores(found)[0] == np.inf


def flow(updates: int, error: float, **more: float) -> Candidate:
    return Candidate("flow-matching", {"training.lr": 1e-3}, updates, {"error_absolute": error, **more})


def test_the_rule_is_the_absolute_error_of_held_out_actions() -> None:
    found = [
        candidate(500, error_absolute=0.2, error_squared=0.1, track_5=0.1),
        flow(8_000, 0.1, error_squared=0.9, track_5=0.9),
    ]
    assert choose(found) == 1
    assert describe_choice(found[1], found).startswith(
        "flow matching with lr 0.001, 8,000 updates; error of held-out actions 0.100; BC has 0.200, and would be "
        "chosen below 0.091"
    )


def test_flow_matching_is_chosen_unless_the_error_of_another_method_is_lower_by_more_than_a_tenth() -> None:
    near, far = candidate(500, error_absolute=0.182), candidate(500, error_absolute=0.181)
    assert choose([near, flow(8_000, 0.2)]) == 1, "0.2 / 1.1 = 0.1818…"
    assert scores([near, flow(8_000, 0.2)]) == pytest.approx([np.log(0.182 * 1.1 / 0.2), 0.0])
    assert choose([far, flow(8_000, 0.2)]) == 0
    assert "lowest error of held-out actions of 2 candidates (0.181)" in describe_choice(far, [far, flow(8_000, 0.2)])


def test_of_flow_matching_only_the_longest_finite_training_is_considered() -> None:
    short, long = flow(2_000, 0.1), flow(8_000, 0.15)
    assert choose([candidate(500, error_absolute=0.16), short, long]) == 2
    assert choose([candidate(500, error_absolute=0.12), short, long]) == 0, "the short one would have been below"
    assert scores([short, long]).tolist() == [np.inf, 0.0]
    assert choose([short, flow(8_000, np.nan)]) == 0
    assert choose([short, long], ("error_absolute",)) == 0, "rules to compare with consider all lengths"


def test_dbc_is_shown_and_not_chosen() -> None:
    low = Candidate("dbc", {}, 1, {"error_absolute": 0.1})
    assert choose([low, candidate(2, error_absolute=0.2)]) == 1
    assert scores([low, candidate(2, error_absolute=0.2)]).tolist() == [np.inf, 0.0]
    assert choose([low, candidate(2, error_absolute=np.nan)]) == 0, "unless nothing else can be chosen"
    assert choose([low, candidate(2, error_absolute=0.2)], ("error_absolute",)) == 0


def test_a_choice_that_is_not_the_best_says_why() -> None:
    candidates = [Candidate("bc", {}, updates, {"error_absolute": 1 / updates}) for updates in (100, 200)]
    assert "lowest error of held-out actions of 2 candidates (0.005)" in describe_choice(candidates[1], candidates)
    late = describe_choice(candidates[0], candidates)
    assert "fits into the time left (error of held-out actions 0.010)" in late
    assert "BC with 200 updates had 0.005: a larger --budget would train that" in late


def test_candidates_are_means_over_seeds() -> None:
    members = [{"seed": s, "coefficient": c} for c in (0.0, 1.0) for s in (0, 1)]
    metrics = {"error_absolute": [1.0, 3.0, 5.0, 7.0], "cost": [None, 1.0, 2.0, 4.0]}
    first, second = list_candidates("dbc", 10, members, metrics)
    assert (first.fields, second.fields) == ({"coefficient": 0.0}, {"coefficient": 1.0})
    assert (first.metrics["error_absolute"], second.metrics["cost"]) == (2.0, 3.0)
    assert np.isnan(first.metrics["cost"])
    assert list_candidates("dbc", 10, members, metrics, seeds=[1])[1].metrics["error_absolute"] == 7.0
    again = Candidate.from_dict(json.loads(json.dumps(first.to_dict())))
    assert again.metrics["error_absolute"] == 2.0
    assert np.isnan(again.metrics["cost"])


def test_a_larger_budget_gives_a_larger_grid() -> None:
    grids = [choose_grid(RATES, budget) for budget in (1.0, 60.0, 240.0, 3600.0, 1e6)]
    places = [GRIDS.index(grid) for grid in grids]
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] == len(GRIDS) - 1
    for budget, grid in zip((60, 240, 3600), grids[1:], strict=False):
        assert sum(RATES.seconds(grid).values()) <= budget
    assert choose_grid(RATES, 1e6, DEFAULT_GRIDS) == GRIDS[DEFAULT_GRIDS - 1]
    images = choose_grid(RATES, 1e6, images=True)
    assert (images.dbc_members, images.flow_members) == (0, 0)


def test_the_plan_has_the_time_of_every_stage() -> None:
    grid = Grid(2, (100, 200), (1e-3,), (0.0, 0.1), (1.0,), (0.0, 1.0), 300)
    seconds = RATES.seconds(grid)
    scored = 4 * 2 * 0.5
    assert seconds == pytest.approx(
        {
            "trying BC: policy": 4 * 200 / 1000 + scored,
            "trying DBC: guide": 300 / 500,
            "trying DBC: policy": 4 * 200 * 1.7 / 400 + scored,
            "final training: guide": 300 / 250,
            "final training: policy": 1.7 * 200 / 200,
        }
    )
    assert RATES.final_seconds(grid, "bc", 100) == {"final training: policy": 0.2}
    assert describe_grid(grid, seconds) == (
        "trying 4 members of BC and 4 members of DBC at 100, 200 updates; about 15 s: BC 5 s, DBC 8 s; "
        "then the final training, up to 3 s."
    )


def test_flow_matching_has_its_own_lengths() -> None:
    grid = Grid(2, (100, 200), flow=(500, 1_000))
    seconds = RATES.seconds(grid)
    assert seconds == pytest.approx(
        {
            "trying BC: policy": 2 * 200 / 1000 + 2 * 2 * 0.5,
            "trying flow matching: policy": 2 * 1_000 / 500 + 2 * 2 * 0.5,
            "final training: policy": 1_000 / 250,
        }
    )
    assert describe_grid(grid, seconds).startswith(
        "trying 2 members of BC at 100, 200 updates, 2 members of flow matching at 500, 1,000 updates; "
    )


def report(stage: str, update: int, rate: float, members: int = 4) -> Progress:
    return Progress(stage, update, 200, {"loss": np.zeros(members)}, update / rate, rate, members)


def test_a_stack_ends_early_if_the_time_left_is_needed_for_the_final_training() -> None:
    grid = Grid(2, (100, 200), (1e-3,), (0.0, 0.1), (1.0,), (0.0,), 300)
    pace = Pace(grid, RATES, Deadline(time.monotonic() + 10.0 + CLOSING))
    pace.report("bc", report("policy", 100, 250.0))
    assert (pace.late, pace.slowdown) == (False, pytest.approx(1.0))
    pace.report("bc", report("policy", 150, 50.0))
    assert (pace.late, pace.slowdown) == (True, pytest.approx(5.0)), "5 × (0.3 s and 2 s of metrics) > 10 s"
    pace.report("dbc", report("guide", 200, 500.0, 1))
    with pytest.raises(OutOfTime):
        pace.report("dbc", report("guide", 200, 50.0, 1))
    unlimited = Pace(grid, None, Deadline())
    unlimited.report("dbc", report("guide", 1, 0.001, 1))
    assert not unlimited.late


def test_a_choice_must_be_trained_within_the_time_left() -> None:
    found = [Candidate(method, {}, updates, {}) for method in ("bc", "dbc") for updates in (100, 200)]
    grid = Grid(2, (100, 200), (1e-3,), (0.0,), (1.0,), (0.0,), 300)
    assert affordable(found, grid, None, 0.0) == [0, 1, 2, 3]
    assert affordable(found, grid, RATES, 10.0) == [0, 1, 2, 3]
    assert affordable(found, grid, RATES, 1.8) == [0, 1, 2]
    assert affordable(found, grid, RATES, -5.0) == [0], "the shortest one if none fits"


def test_every_grid_has_bc_and_increasing_lengths() -> None:
    for grid in GRIDS:
        assert 0.0 in grid.state_noise
        for lengths in (grid.snapshots, grid.flow):
            assert list(lengths) == sorted(set(lengths))
        assert grid.seeds > 1, "disagreement needs two seeds"


def test_the_chosen_method_has_the_values_of_the_candidate() -> None:
    demos = line_demonstrations()
    bc = chosen_method(TINY, demos, "bc", {"training.lr": 3e-4, "state_noise": 0.1}, 500)
    assert isinstance(bc, BC)
    assert (bc.training.lr, bc.state_noise, bc.training.updates) == (3e-4, 0.1, 500)
    dbc = chosen_method(TINY, demos, "dbc", {"training.lr": 1e-3, "coefficient": 3.0, "away": 1.0}, 64)
    assert isinstance(dbc, DBC)
    assert (dbc.coefficient, dbc.away, dbc.guide.training.updates) == (3.0, 1.0, 32)
    flow = chosen_method(TINY, demos, "flow-matching", {"training.lr": 3e-4}, 48)
    assert isinstance(flow, FlowMatching)
    assert (flow.training.lr, flow.training.updates) == (3e-4, 48)


def ignore(stage: str, now: Progress) -> None:
    pass


def refuse(stage: str, now: Progress) -> None:
    pytest.fail("nothing is left to train")


def run(folder: Path, demos: Demonstrations, **more: Any) -> tuple[search.SearchResult, list[str]]:
    said: list[str] = []
    progress = more.pop("progress", ignore)
    result = search_in_folder(folder, demos, SearchOptions(grid=TINY, device="cpu", **more), progress, said.append)
    return result, said


def test_a_search_chooses_trains_and_says_so(tmp_path: Path) -> None:
    demos = line_demonstrations()
    result, said = run(tmp_path / "run", demos, seeds=(0, 1))
    assert len(result.candidates) == 2 * (2 + 2) + 1
    assert result.choice is not None
    assert result.chosen == choose(result.candidates)
    assert len(result.policy) == 2
    assert result.policy.method.training.updates == result.choice.updates
    assert result.policy.data["fingerprint"] == demos.fingerprint, "the final training uses all demonstrations"
    assert any("trying 4 members of BC and 4 members of DBC at 32, 64 updates, 2 members of flow" in x for x in said)
    assert any(line.startswith("chosen: ") for line in said)
    assert not (tmp_path / "run" / "search").exists()
    saved = Policy.load(tmp_path / "run" / "policy")
    assert saved(demos.obs).tolist() == result.policy(demos.obs).tolist()


def test_an_interrupted_search_resumes_to_the_same_policy(tmp_path: Path) -> None:
    demos = line_demonstrations()
    expected, _ = run(tmp_path / "a", demos)
    for stage in ("trying BC", "trying flow matching", "trying DBC", "final training"):

        def stop(name: str, now: Progress, stage: str = stage) -> None:
            if name == stage:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "b", demos, progress=stop)
    resumed, _ = run(tmp_path / "b", demos)
    assert resumed.choice == expected.choice
    assert resumed.policy(demos.obs).tolist() == expected.policy(demos.obs).tolist()
    again, _ = run(tmp_path / "b", demos, progress=refuse)
    assert again.choice == expected.choice


def test_no_other_training_takes_the_folder_of_an_unfinished_search(tmp_path: Path) -> None:
    demos, folder = line_demonstrations(), tmp_path / "run"

    def interrupt(name: str, now: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(folder, demos, progress=interrupt)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    method = BC(training=Training(updates=4), network=Network(width=4, depth=1))
    with pytest.raises(InvalidFile, match=r"holds an unfinished search.* repeat the search's command to finish it, or"):
        train_run(folder, method, demos, FitOptions(device="cpu"))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    write_json(folder / "run.json", {"method": {}})  # as earlier versions let another training do
    with pytest.raises(InvalidFile, match="holds an unfinished search and the run of another training"):
        run(folder, demos, progress=refuse)
    (folder / "run.json").unlink()
    run(folder, demos)


def test_a_folder_with_something_else_is_not_changed(tmp_path: Path) -> None:
    demos = line_demonstrations()
    run(tmp_path / "a", demos)
    with pytest.raises(InvalidFile, match="holds another search"):
        run(tmp_path / "a", line_demonstrations(seed=3))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("text")
    with pytest.raises(InvalidFile, match="holds no search"):
        run(tmp_path / "b", demos)
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["thesis.txt"]
    with pytest.raises(InvalidSettings, match="budget must be above 0"):
        diffclone.search(demos, budget=0.0)


@pytest.mark.parametrize(
    ("demos", "options", "message"),
    [
        (line_demonstrations(), {"budget": "4m"}, "budget must be above 0 seconds, such as 240.0; it is '4m'"),
        (line_demonstrations(), {"budget": None}, "budget must be above 0 seconds.* it is None"),
        (line_demonstrations(), {"seeds": 0}, "seeds must be different whole numbers.* they are 0"),
        (line_demonstrations().obs, {}, "demos must be Demonstrations.* it is of type ndarray"),
        ("nothing.npz", {}, "no such file: nothing.npz"),
    ],
)
def test_arguments_of_a_wrong_kind_are_one_line(
    demos: Any, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no type checks
    with pytest.raises(DiffcloneError, match=message):
        diffclone.search(demos, **options)


def test_a_search_reads_a_file_and_takes_a_number_of_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FALLBACK_UPDATES", 20)
    line_demonstrations(3, steps=1).save(tmp_path / "short.npz")
    result = diffclone.search(tmp_path / "short.npz", seeds=2, folder=tmp_path / "run", device="cpu")
    assert [member["seed"] for member in result.policy.members] == [0, 1]
    again = diffclone.search(tmp_path / "short.npz", seeds=[0, 1], folder=tmp_path / "run", device="cpu")
    assert again.policy.members == result.policy.members


@pytest.mark.parametrize(
    ("demos", "says", "searches"),
    [
        (line_demonstrations(3, steps=40), "3 episodes: too few to hold out whole ones. Pieces", 1),
        (line_demonstrations(1, steps=60), "1 episode: too few to hold out whole ones. Pieces", 1),
        (line_demonstrations(1, steps=4), "1 episode with 4 steps is too few to hold any out.*BC for 20", 0),
        (line_demonstrations(3, steps=1), "3 episodes with 3 steps are too few to hold any out", 0),
        (line_demonstrations(12, steps=1), "", 1),
    ],
)
def test_poor_data_still_gives_a_policy(
    demos: Demonstrations, says: str, searches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "FALLBACK_UPDATES", 20)
    result, said = run(tmp_path / "run", demos)
    assert len(result.notes) == bool(says), "episodes of one step need no remark"
    assert re.search(says, said[0])
    assert (result.choice is not None) == bool(searches)
    assert isinstance(result.policy.method, BC | DBC | FlowMatching)
    assert np.isfinite(result.policy(demos.obs)).all()


def test_constant_actions_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FALLBACK_UPDATES", 20)
    demos = line_demonstrations()
    constant = Demonstrations.from_arrays(demos.obs, np.full((len(demos), 2), 0.7), episode_ends=demos.episode_ends)
    result, said = run(tmp_path / "run", constant)
    assert said == ["all actions are equal, so that there is nothing to choose; training BC for 20 updates instead."]
    assert isinstance(result.policy.method, BC)
    assert result.policy(demos.obs) == pytest.approx(np.full((len(demos), 2), 0.7), abs=1e-6)


def test_train_without_flags_searches(diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_plan, "GRIDS", (TINY,))
    monkeypatch.setattr(search_plan, "RATE_UPDATES", 4)
    demos = line_demonstrations()
    demos.save(tmp_path / "mine.npz")
    command = ("train", tmp_path / "mine.npz", "--device", "cpu", "--no-cache", "--out", tmp_path / "run")
    result = diffclone(*command)
    assert result.code == 0, result.err
    assert "trying 4 members of BC and 4 members of DBC at 32, 64 updates, 2 members of flow matching" in result.err
    assert "chosen: " in result.err
    assert "The best of 9 candidates" in result.out
    page = (tmp_path / "run" / "search.html").read_text()
    assert "no environment" in page
    assert "All candidates" in page
    assert RULE in page
    assert len(Policy.load(tmp_path / "run" / "policy")) == 1
    again = diffclone(*command, "--json")
    assert again.code == 0
    assert json.loads(again.out)["tried"] == 9
    assert "was finished before: nothing was trained." in again.err


@pytest.mark.parametrize(
    "flags",
    [("--plain",), ("--method", "bc"), ("--held-out", "0.5"), ("--vary", "imitation=1"), ("--guide", "diffusion")],
)
def test_naming_a_method_or_a_setting_does_not_search(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    line_demonstrations().save(tmp_path / "mine.npz")
    trained: list[Any] = []

    def stop(*given: Any, **more: Any) -> None:
        trained.append(given)
        raise InvalidSettings("plain")

    def fail(*given: Any, **more: Any) -> None:
        pytest.fail("a search")

    def no_estimate(*given: Any) -> dict[str, float]:
        return {}

    monkeypatch.setattr("diffclone.cli.train.train_run", stop)
    monkeypatch.setattr("diffclone.cli.train.run_search", fail)
    monkeypatch.setattr("diffclone.cli.train.estimate_seconds", no_estimate)
    assert diffclone("train", tmp_path / "mine.npz", *flags, "--out", tmp_path / "run").code == 2
    assert diffclone("train", tmp_path / "mine.npz", "--coefficient", "auto", "--out", tmp_path / "run").code == 2
    assert len(trained) == 2


@pytest.mark.parametrize("budget", ["0m", "m", "3", "3d", "nanm", "-1m"])
def test_a_budget_is_a_time(diffclone: Command, tmp_path: Path, budget: str) -> None:
    result = diffclone("train", "maze", f"--budget={budget}", "--out", tmp_path / "run")
    assert result.code == 2
    assert "--budget takes a time such as 90s, 3m or 1h" in result.err
