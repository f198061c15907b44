import json
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Command
from diffclone.cli.inspect import Inspect
from diffclone.data import Demonstrations
from diffclone.data.inspection import CHECKS, SEVERITIES, Finding, find_problems, rank_episodes, summarise
from diffclone.data.inspection.actions import find_misaligned_actions
from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.fit import FitOptions
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC
from diffclone.model import Training
from diffclone.nn import Network
from diffclone.tasks import BUNDLED, TASKS, Task
from diffclone.training.runs import train_run

Episode = tuple[npt.NDArray[Any], npt.NDArray[Any]]
BOUNDS = {"action_bounds": [[-8.0, -8.0], [8.0, 8.0]]}


def drive(seed: int, length: int = 60) -> Episode:
    """Simulate a cart that a noisy controller pushes to a goal. It observes position, velocity and goal."""
    rng = np.random.default_rng(seed)
    position, speed, goal = rng.normal(0, 2, 2), np.zeros(2), rng.normal(0, 2, 2)
    obs, act = np.empty((length, 6)), np.empty((length, 2))
    for t in range(length):
        push = 0.6 * (goal - position) - 1.2 * speed + rng.normal(0, 0.2, 2)
        obs[t], act[t] = [*position, *speed, *goal], push
        speed = speed + 0.1 * push
        position = position + 0.1 * speed
    return obs, act


def demonstrations(episodes: Sequence[Episode], meta: dict[str, Any] | None = None) -> Demonstrations:
    obs, act = (np.concatenate(parts) for parts in zip(*episodes, strict=True))
    return Demonstrations.from_arrays(obs, act, episode_ends=np.cumsum([len(o) for o, _ in episodes]), meta=meta)


def good(count: int = 30) -> list[Episode]:
    return [drive(seed) for seed in range(count)]


def each(change: Callable[[npt.NDArray[Any], npt.NDArray[Any]], Episode]) -> Demonstrations:
    """Return the good demonstrations with a change to every episode."""
    return demonstrations([change(obs, act) for obs, act in good()], BOUNDS)


def with_columns(obs: npt.NDArray[Any], *columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.column_stack([obs, *columns])


def forked() -> Demonstrations:
    """Return episodes with the same states and, in half of them, opposite actions."""
    line = np.linspace(0, 1, 50)
    rng = np.random.default_rng(0)
    return demonstrations(
        [
            (np.stack([line, line**2], 1) + rng.normal(0, 1e-3, (50, 2)), np.full((50, 1), float(sign)) + line[:, None])
            for sign in [1, -1] * 10
        ]
    )


def turning(obs: npt.NDArray[Any], act: npt.NDArray[Any]) -> Episode:
    angle = np.cumsum(np.full(len(obs), 0.25)) + obs[0, 0]
    return with_columns(obs, (angle + np.pi) % (2 * np.pi) - np.pi), act


def joined(first: Episode, second: Episode) -> Episode:
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])


def frozen(obs: npt.NDArray[Any], act: npt.NDArray[Any]) -> Episode:
    return joined((obs, act), (np.repeat(obs[-1:], 20, 0), np.zeros((20, 2))))


def images(blank: int = 0) -> Demonstrations:
    shots = np.random.default_rng(0).integers(0, 256, (600, 48), dtype=np.uint8)
    shots[:blank] = 7
    act = np.random.default_rng(1).normal(size=(600, 2))
    return Demonstrations.from_arrays(shots, act, episode_ends=np.arange(1, 13) * 50)


PROBLEMS: dict[str, tuple[str, str, str, Callable[[], Demonstrations]]] = {
    "few pairs": ("too_little_data", "problem", "obs", lambda: demonstrations([drive(0, 8)])),
    "few episodes": ("too_little_data", "warning", "episode", lambda: demonstrations([drive(0, 600)])),
    "short episode": ("tiny_episodes", "warning", "episode 30", lambda: demonstrations([*good(), drive(99, 3)])),
    "done flag at every step": (
        "tiny_episodes",
        "problem",
        "episode",
        lambda: demonstrations([drive(seed, 1) for seed in range(300)]),
    ),
    "copied episode": ("duplicate_episodes", "warning", "episode 30", lambda: demonstrations([*good(), drive(3)])),
    "nearly copied episode": (
        "duplicate_episodes",
        "warning",
        "episode 30",
        lambda: demonstrations([*good(), (drive(3)[0] + 1e-5, drive(3)[1])]),
    ),
    "mostly copied episodes": (
        "duplicate_episodes",
        "problem",
        "episode",
        lambda: demonstrations([*good(10), *good(10)]),
    ),
    "waiting expert": (
        "frozen_stretches",
        "warning",
        "episode 0, 1, 2, 3, 4, 5, 6, 7 … (30 in all)",
        lambda: each(frozen),
    ),
    "unmarked end": (
        "jumps",
        "warning",
        "episode 30",
        lambda: demonstrations([*good(), joined(drive(40), drive(41))]),
    ),
    "constant observations": (
        "constant_observations",
        "problem",
        "obs",
        lambda: each(lambda o, a: (np.ones_like(o), a)),
    ),
    "constant dimension": (
        "constant_observations",
        "note",
        "obs 6",
        lambda: each(lambda o, a: (with_columns(o, np.full(len(o), 3.3)), a)),
    ),
    "nearly constant dimension": (
        "hardly_varying_observations",
        "note",
        "obs 6",
        lambda: each(lambda o, a: (with_columns(o, 1e-4 * o[:, 0] ** 2), a)),
    ),
    "blank images": ("blank_images", "warning", "episode 0", lambda: images(blank=5)),
    "copied dimension": (
        "duplicated_observations",
        "warning",
        "obs 6",
        lambda: each(lambda o, a: (with_columns(o, 3 - 2 * o[:, 1]), a)),
    ),
    "action in the observation": (
        "leaked_actions",
        "problem",
        "obs 6",
        lambda: each(lambda o, a: (with_columns(o, 2 * a[:, 1]), a)),
    ),
    "last action in the observation": (
        "leaked_actions",
        "note",
        "obs 6",
        lambda: each(lambda o, a: (with_columns(o, np.append(0, a[:-1, 1])), a)),
    ),
    "counter": (
        "different_scales",
        "warning",
        "obs 6",
        lambda: each(lambda o, a: (with_columns(o, 1e7 * o[:, 0] ** 2), a)),
    ),
    "degrees": (
        "degrees",
        "note",
        "obs 6",
        lambda: each(lambda o, a: (with_columns(o, 170 * np.tanh(o[:, 0]), 1.5 * np.tanh(o[:, 1])), a)),
    ),
    "wrapping angle": ("wrapping_angles", "warning", "obs 6", lambda: each(turning)),
    "constant actions": ("constant_actions", "problem", "act", lambda: each(lambda o, a: (o, 0 * a))),
    "constant action dimension": ("constant_actions", "note", "act 1", lambda: each(lambda o, a: (o, a * [1, 0]))),
    "copied action dimension": ("constant_actions", "note", "act 1", lambda: each(lambda o, a: (o, a[:, [0, 0]]))),
    "switch": (
        "saturated_actions",
        "note",
        "act 1",
        lambda: each(lambda o, a: (o, np.column_stack([a[:, 0], a[:, 1] > 0]))),
    ),
    "clipped actions": ("saturated_actions", "warning", "act 0, 1", lambda: each(lambda o, a: (o, a.clip(-0.3, 0.3)))),
    "actions at the bounds": (
        "saturated_actions",
        "note",
        "act 0, 1",
        lambda: each(lambda o, a: (o, (40 * a).clip(-8, 8))),
    ),
    "actions in a larger unit": (
        "actions_outside_bounds",
        "problem",
        "act 0, 1",
        lambda: each(lambda o, a: (o, 1000 * a)),
    ),
    "actions beyond the bounds": ("actions_outside_bounds", "note", "act 0, 1", lambda: each(lambda o, a: (o, 4 * a))),
    "actions in a smaller unit": (
        "actions_outside_bounds",
        "warning",
        "act 0, 1",
        lambda: each(lambda o, a: (o, a / 1000)),
    ),
    "actions one row late": ("misaligned_actions", "warning", "all", lambda: each(lambda o, a: (o[1:], a[:-1]))),
    "actions one row early": ("misaligned_actions", "warning", "all", lambda: each(lambda o, a: (o[:-1], a[1:]))),
    "contradictory actions": ("contradictory_actions", "warning", "act", forked),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_problem_is_found_by_its_check(problem: str) -> None:
    check, severity, where, make = PROBLEMS[problem]
    findings = CHECKS[check](make())
    assert severity in {finding.severity for finding in findings}, findings
    assert any(finding.where.startswith(where) for finding in findings), findings
    assert all(finding.what and finding.advice.endswith(".") for finding in findings)


def test_every_check_has_a_problem_that_it_finds() -> None:
    assert {check for check, *_ in PROBLEMS.values()} == set(CHECKS)


def test_good_demonstrations_have_no_findings() -> None:
    assert find_problems(demonstrations(good(), BOUNDS)) == []
    assert find_problems(demonstrations(good())) == []
    assert find_problems(images()) == []


@pytest.mark.parametrize("task", BUNDLED, ids=lambda task: task.name)
def test_bundled_demonstrations_have_notes_only(task: Task) -> None:
    findings = find_problems(task.demonstrations())
    assert {finding.severity for finding in findings} <= {"note"}, findings


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("task", ["maze", "fetch-pick", "hand-rotate", "spiral"])
def test_a_shift_is_found_in_bundled_demonstrations(task: str, shift: int) -> None:
    episodes = [(o, a) for o, a in TASKS[task].demonstrations().episodes() if len(o) > 3]
    shifted = [(o[1:], a[:-1]) if shift == 1 else (o[:-1], a[1:]) for o, a in episodes]
    findings = [finding for finding in find_problems(demonstrations(shifted)) if finding.check == "misaligned_actions"]
    assert len(findings) == 1
    assert ("late: shift" if shift == 1 else "early") in findings[0].advice


def test_feedback_in_a_noisy_environment_is_not_reported_as_a_shift() -> None:
    # The next action depends on the next observation and so contains its noise.
    rng = np.random.default_rng(0)
    episodes: list[Episode] = []
    for _ in range(20):
        position = np.zeros((80, 2))
        for t in range(79):
            position[t + 1] = 0.9 * position[t] + rng.normal(0, 1, 2)
        episodes.append((position, -position + rng.normal(0, 0.01, position.shape)))
    assert find_problems(demonstrations(episodes)) == []


def follow(seed: int, share: float) -> Episode:
    """Simulate an arm that moves a share of the way to a smooth target in each step. The action is the target."""
    rng = np.random.default_rng(seed)
    knots = rng.normal(0, 1, (7, 3))
    target = np.stack([np.interp(np.linspace(0, 6, 200), np.arange(7), k) for k in knots.T], 1)
    target += rng.normal(0, 0.005, target.shape)
    position = target[:1].repeat(200, 0)
    for t in range(199):
        position[t + 1] = position[t] + share * (target[t] - position[t]) + rng.normal(0, 0.001, 3)
    return position, target


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_target_actions_are_not_reported_as_a_shift(share: float) -> None:
    episodes = [follow(seed, share) for seed in range(20)]
    assert not find_misaligned_actions(demonstrations(episodes))
    assert find_misaligned_actions(demonstrations([(o[1:], a[:-1]) for o, a in episodes]))[0].advice.count("late")
    assert find_misaligned_actions(demonstrations([(o[:-1], a[1:]) for o, a in episodes]))[0].advice.count("early")


def test_the_next_position_as_action_has_notes_only() -> None:
    episodes = [follow(seed, 0.5)[0] for seed in range(20)]
    findings = find_problems(demonstrations([(position[:-1], position[1:]) for position in episodes]))
    assert {finding.severity for finding in findings} <= {"note"}, findings


def swing_up(seed: int) -> Episode:
    """Simulate Gymnasium's Pendulum: a controller adds energy, then holds the pendulum upright until step 200."""
    angle, speed = np.random.default_rng(seed).uniform((-np.pi, -1), (np.pi, 1))
    obs, act = np.empty((200, 3)), np.empty((200, 1))
    for t in range(200):
        angle = (angle + np.pi) % (2 * np.pi) - np.pi
        energy = speed**2 / 6 + 5 * np.cos(angle)
        push = -10 * angle - 3 * speed if abs(angle) < 0.6 else (1.0 if speed >= 0 else -1.0) * 2 * (5 - energy)
        push = float(np.clip(push, -2, 2))
        obs[t], act[t] = [np.cos(angle), np.sin(angle), speed], push
        speed = np.clip(speed + 0.05 * (15 * np.sin(angle) + 3 * push), -8, 8)
        angle += 0.05 * speed
    return obs, act


def reach(seed: int, *, idle: int, ramp: int = 1) -> Episode:
    """Move an arm to a goal, with the velocity as the action, after `idle` steps at rest. The velocity rises slowly."""
    start, goal = np.random.default_rng(seed).normal(0, 1, (2, 2))
    obs, act, position = np.empty((80, 4)), np.empty((80, 2)), start
    for t in range(80):
        velocity = (goal - position) * 0.1 * np.clip((t - idle + 1) / ramp, 0, 1) ** 2 * (t >= idle)
        obs[t], act[t] = [*position, *goal], velocity
        position = position + velocity
    return obs, act


def new_goals(seed: int) -> Episode:
    """Join movements to goals. The arm rests at a goal until the next one is given."""
    rng, position, rows = np.random.default_rng(seed), np.zeros(2), list[tuple[Any, Any]]()
    for goal in rng.normal(0, 1, (4, 2)):
        for _ in range(40):
            velocity = np.where(np.abs(goal - position) > 1e-4, 0.5 * (goal - position), 0.0)
            rows.append(([*position, *goal], velocity))
            position = position + velocity
    obs, act = zip(*rows, strict=True)
    return np.array(obs), np.array(act)


def hang(seed: int) -> Episode:
    """Repeat the last observation 30 times at the end, while the actions go on."""
    obs, act = drive(seed, 60)
    return np.concatenate([obs[:30], np.repeat(obs[29:30], 30, 0)]), act


@pytest.mark.parametrize("make", [swing_up, new_goals])
def test_holding_a_state_is_no_problem(make: Callable[[int], Episode], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffclone.data.inspection.episodes.MUCH_REST", 0.1)  # so that the note appears
    demos = demonstrations([make(seed) for seed in range(20)])
    found = [finding for finding in find_problems(demos) if finding.check == "frozen_stretches"]
    assert [finding.severity for finding in found] == ["note"]
    assert "Fine if the task is to hold it" in found[0].advice
    assert "Remove" not in found[0].advice


@pytest.mark.parametrize(
    "make",
    [partial(reach, idle=20), partial(reach, idle=20, ramp=25), hang],
    ids=["idle start", "slow start", "hanging recording"],
)
def test_waiting_and_hanging_are_found(make: Callable[[int], Episode]) -> None:
    demos = demonstrations([make(seed) for seed in range(20)])
    found = [finding for finding in find_problems(demos) if finding.check == "frozen_stretches"]
    assert found[0].severity == "warning"
    assert found[0].places == tuple(range(20))
    assert "Remove these steps" in found[0].advice
    assert not [f for f in find_problems(demonstrations(good())) if f.check == "frozen_stretches"]


def test_findings_are_sorted_by_severity() -> None:
    findings = find_problems(demonstrations([drive(0, 8)]))
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    assert len(ranks) > 1
    assert ranks == sorted(ranks)


def test_long_lists_of_indices_are_shortened() -> None:
    assert Finding("note", "w", "a", "obs", tuple(range(20))).where == "obs 0, 1, 2, 3, 4, 5, 6, 7 … (20 in all)"
    assert Finding("note", "w", "a").where == "all"


def test_the_unusual_episode_is_ranked_first() -> None:
    episodes = good(40)
    episodes[17] = (episodes[17][0] + 4, -episodes[17][1])
    ranking = rank_episodes(demonstrations(episodes))
    assert ranking.order[0] == 17
    assert sorted(ranking.order.tolist()) == list(range(40))
    again = rank_episodes(demonstrations(episodes))
    assert (again.score == ranking.score).all()


def test_the_unusual_episode_among_equal_ones_is_ranked_first() -> None:
    obs, act = drive(0)
    ranking = rank_episodes(demonstrations([*[(obs, act)] * 6, (20 * obs + 50, act)]))
    assert ranking.order[0] == 6
    assert ranking.score[6] > 3
    assert ranking.score[:6] == pytest.approx(0)


def test_a_single_episode_has_score_zero() -> None:
    assert rank_episodes(demonstrations([drive(0)])).score.tolist() == [0]


@given(
    steps=st.integers(1, 40),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    values=st.sampled_from([0.0, 1e-30, 1.0, 1e30]),
    kind=st.sampled_from([np.uint8, np.float32]),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
def test_all_valid_demonstrations_can_be_inspected(
    steps: int, sizes: tuple[int, int], values: float, kind: type[np.number], data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    ends = sorted({*data.draw(st.lists(st.integers(1, steps), max_size=5)), steps})
    obs: Any = rng.integers(0, 3, (steps, sizes[0])).astype(kind)
    act = values * rng.integers(-1, 2, (steps, sizes[1]))
    scaled = obs if kind is np.uint8 else obs * np.float32(values)
    sides = [(-1.0, 1.0), (-np.inf, np.inf), (0.0, 0.0)]
    bounds = data.draw(
        st.sampled_from([{}, *({"action_bounds": [[side] * sizes[1] for side in pair]} for pair in sides)])
    )
    demos = Demonstrations.from_arrays(scaled, act, episode_ends=ends, meta=bounds)
    with np.errstate(all="raise", under="ignore"):
        findings, ranking = find_problems(demos), rank_episodes(demos)
    assert all(np.isfinite(v).all() for v in (ranking.score, ranking.summary, ranking.distance))
    assert all("nan" not in finding.what for finding in findings)


def test_a_hundred_thousand_steps_take_seconds() -> None:
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((100_000, 50), dtype=np.float32).cumsum(0)
    demos = Demonstrations.from_arrays(obs, rng.standard_normal((100_000, 8)), episode_ends=np.arange(1, 501) * 200)
    begun = time.perf_counter()
    find_problems(demos)
    rank_episodes(demos)
    assert time.perf_counter() - begun < 10  # about a quarter of that on one free core


def test_contents_are_words_and_nothing_is_said_twice(diffclone: Command, tmp_path: Path) -> None:
    steps = np.linspace(0, 1, 40)[:, None]
    np.savez(tmp_path / "names.npz", x=steps, y=steps[:, 0], u=steps, trial=np.arange(40) // 20)
    flags = ("--obs-keys", "x", "y", "--action-keys", "u", "--episode-key", "trial")
    result = diffclone("inspect", tmp_path / "names.npz", *flags)
    assert result.code == 0, result.err
    lines = dict(re.findall(r"^(\w+) {2,}(.*)$", result.out.partition("\n\n")[0], re.MULTILINE))
    assert lines["episodes"] == "2, of 20 steps"
    assert lines["reader"] == "npz, observations from x (1), y (1)"
    assert "source" not in lines  # it is the file that was named


def test_the_summary_contains_the_reader_summary() -> None:
    demos = demonstrations(good(5), {"understood": {"keys": ["a", "b"]}, "source": "there"})
    summary = summarise(demos)
    assert summary["reader"] == {"keys": ["a", "b"]}
    assert summary["source"] == "there"
    assert summary["episodes"] == 5


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.npz"
    demonstrations([*good(9), drive(3)], {**BOUNDS, "source": "<i>there</i> [/red]"}).save(path)
    return path


def test_inspect_prints_tables_and_writes_a_page(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = file.with_name("page.html")
    Inspect(str(file), page=page).run()
    printed = capsys.readouterr()
    for words in ("Contents", "[/red]", "obs 5", "-8 … 8", "warning", "episode 9", "Most unusual"):
        assert words in printed.out
    assert "0 problems, 1 warning, 0 notes" in printed.err
    text = page.read_text(encoding="utf-8")
    assert text.count("<figure") == 6
    assert 'src="' not in text
    assert "<i>there" not in text
    assert "prefers-color-scheme: dark" in text
    assert "Leave them out" in text


def test_inspect_prints_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Inspect(str(file), json=True).run()
    answer = json.loads(capsys.readouterr().out)
    assert answer["understood"]["steps"] == 600
    assert len(answer["ranges"]["obs"]["low"]) == 6
    assert answer["findings"][0]["places"] == [9]
    assert sorted(e["episode"] for e in answer["episodes"]) == list(range(10))


def test_a_page_with_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images(blank=2).save(tmp_path / "images.npz")
    Inspect(str(tmp_path / "images.npz"), page=tmp_path / "page.html").run()
    assert "pixels" in capsys.readouterr().out
    assert "mean brightness" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_pages_are_html_and_not_overwritten(file: Path) -> None:
    file.with_name("there.html").touch()
    with pytest.raises(InvalidFile, match="not overwritten"):
        Inspect(str(file), page=file.with_name("there.html")).run()
    with pytest.raises(InvalidSettings, match=r"ends in \.pdf"):
        Inspect(str(file), page=Path("page.pdf")).run()


def test_a_guide_ranks_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training, network = Training(updates=64, batch=32), Network(width=16)
    method = DBC(training=training, network=network, guide=DiffusionGuide(training=training, width=16, depth=2))
    train_run(tmp_path / "dbc", method, demonstrations(good()), FitOptions(device="cpu"))
    episodes = good(8)
    episodes[5] = (episodes[5][0] + 6, -4 * episodes[5][1])
    demonstrations(episodes).save(tmp_path / "mine.npz")
    Inspect(str(tmp_path / "mine.npz"), run_folder=tmp_path / "dbc", json=True).run()
    ranked = json.loads(capsys.readouterr().out)["episodes"]
    assert ranked[0]["episode"] == 5
    assert ranked[0]["cost"] > ranked[1]["cost"]
    Inspect(str(tmp_path / "mine.npz"), run_folder=tmp_path / "dbc").run()
    assert "guide's cost" in capsys.readouterr().out

    train_run(
        tmp_path / "bc",
        BC(training=training, network=network),
        demonstrations(good()),
        FitOptions(device="cpu"),
    )
    with pytest.raises(InvalidSettings, match="holds BC, which has no guide"):
        Inspect(str(tmp_path / "mine.npz"), run_folder=tmp_path / "bc").run()
    with pytest.raises(InvalidFile, match="not a run"):
        Inspect(str(tmp_path / "mine.npz"), run_folder=tmp_path).run()


def test_a_guide_of_windows_and_chunks_ranks_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training, network = Training(updates=64, batch=32), Network(width=16)
    guide = DiffusionGuide(training=training, width=16, depth=2)
    method = DBC(training=training, network=network, guide=guide, history=2, horizon=4, execute=2)
    run = train_run(tmp_path / "dbc", method, demonstrations(good()), FitOptions(device="cpu"))
    episodes = good(4)
    episodes[2] = (episodes[2][0] + 6, -4 * episodes[2][1])
    episodes.append((episodes[0][0][:1], episodes[0][1][:1]))  # shorter than a window and than a chunk
    demonstrations(episodes).save(tmp_path / "mine.npz")
    Inspect(str(tmp_path / "mine.npz"), run_folder=tmp_path / "dbc", json=True).run()
    ranked = json.loads(capsys.readouterr().out)["episodes"]
    assert ranked[0]["episode"] == 2
    trained = run.policy()[0].guide
    assert trained is not None
    (obs, act), found = episodes[4], next(e["cost"] for e in ranked if e["episode"] == 4)
    assert found == pytest.approx(float(trained.cost(np.tile(obs, 2), np.tile(act, 4), draws=8)[0]), rel=1e-5)
