import importlib.resources
import json
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import numpy.typing as npt
import pytest

from conftest import Command, assert_error
from diffclone import Demonstrations
from diffclone.cli.main import main
from diffclone.errors import CannotRender, InvalidSettings
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.tasks.beside import (
    BAR,
    COLOURS,
    COLUMNS,
    GAP,
    LABEL,
    LAST,
    LAST_OF_GRID,
    join_episodes,
    join_grid,
)
from diffclone.tasks.car_racing import CarRacingBatch
from diffclone.tasks.experts import Episode, gaussian_disturbance, run_episode
from diffclone.tasks.maze import MazeBatch
from diffclone.tasks.options import parse_options
from diffclone.tasks.rendering import RenderedEpisode, render_episode, write_frames
from diffclone.tasks.spiral import SpiralBatch

TINY = ("--method", "bc", "--seeds", "2", "--training.updates", "8", "--network.width", "8", "--device", "cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two barely trained members on Maze."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    main(["train", "maze", *TINY, "--out", str(folder)])
    return folder


# Options.


@pytest.mark.parametrize(
    ("texts", "parsed"),
    [
        ((), {}),
        (("start_noise=2", "goal_noise=-1e-3"), {"start_noise": 2.0, "goal_noise": -1e-3}),
        (("end_on_success=false", "other=true"), {"end_on_success": False, "other": True}),
        (("name=a=b",), {"name": "a=b"}),
        (("name=",), {"name": ""}),
    ],
)
def test_an_option_is_a_name_and_a_value(texts: tuple[str, ...], parsed: dict[str, object]) -> None:
    assert parse_options(texts) == parsed


@pytest.mark.parametrize("text", ["start_noise", "=2", ""])
def test_an_option_without_name_or_value_is_one_line(text: str) -> None:
    with pytest.raises(InvalidSettings, match=f"an option is NAME=VALUE; it was given '{text}'"):
        parse_options([text])


def test_a_whole_number_reaches_the_environment() -> None:
    env = TASKS["car-racing"].make(1, **parse_options(["repeat=3"]))
    assert isinstance(env, CarRacingBatch)
    assert env.races.repeat == 3
    env.close()


# Tasks.


def test_tasks_prints_a_table_with_a_line_about_each_task(diffclone: Command) -> None:
    result = diffclone("tasks")
    assert result.code == 0
    for task in TASKS.values():
        assert task.name in result.out
        assert f"{task.summary} ({task.gymnasium_id or task.package})" in " ".join(result.out.split())


def test_tasks_as_json_have_the_scores_of_the_experts(diffclone: Command) -> None:
    rows = {row["task"]: row for row in json.loads(diffclone("tasks", "--json").out)}
    assert list(rows) == list(TASKS)
    for name, row in rows.items():
        task = TASKS[name]
        assert (row["observation"], row["action"], row["steps"]) == (task.obs_size, task.act_size, task.horizon)
        assert row["demonstrations"].startswith(f"{task.episodes} episodes")
        score = r"\d+\.\d %" if task.metric == "success" else r"-?\d+"
        assert re.fullmatch(score if task.package is None else "–", row["expert"])  # docs/external.md has those scores


def test_a_task_of_another_package_needs_no_demonstrations_and_no_score(
    diffclone: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = replace(TASKS["maze"], name="mine", gymnasium_id=None)
    monkeypatch.setattr("diffclone.cli.tasks.TASKS", {"mine": task})
    (row,) = json.loads(diffclone("tasks", "--json").out)
    assert (row["demonstrations"], row["expert"]) == ("–", "–")


# Collect.


def test_collect_with_options(diffclone: Command, tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    result = diffclone("collect", "fetch-pick", "--episodes", "2", "--out", path, "--options", "region=2", "noise=0.1")
    assert result.code == 0
    demos = Demonstrations.load(path)
    assert demos.num_episodes == 2
    assert demos.meta["expert"] == "PickExpert"
    assert f"wrote {path}" in result.err
    phase = demos.act[:10, 3]
    assert np.array_equal(phase, np.full(10, 0.05, dtype=np.float32))


def test_the_recorded_command_reproduces_the_demonstrations(diffclone: Command, tmp_path: Path) -> None:
    options = ("--options", "noise=0.02", "start_noise=0.02")
    assert diffclone("collect", "spiral", "--episodes", "2", "--out", tmp_path / "a.npz", *options).code == 0
    first = Demonstrations.load(tmp_path / "a.npz")
    _, *again = shlex.split(first.meta["command"])
    assert diffclone(*again, "--out", tmp_path / "b.npz").code == 0
    assert Demonstrations.load(tmp_path / "b.npz").fingerprint == first.fingerprint


def test_a_disturbance_is_executed_and_not_recorded(diffclone: Command, tmp_path: Path) -> None:
    for name, flags in {"clean": (), "disturbed": ("--disturbance", "0.02")}.items():
        assert diffclone("collect", "spiral", "--episodes", "1", "--out", tmp_path / f"{name}.npz", *flags).code == 0
    clean, disturbed = (Demonstrations.load(tmp_path / f"{name}.npz") for name in ("clean", "disturbed"))
    assert np.array_equal(clean.act, disturbed.act)  # this expert is a script of forces
    assert np.array_equal(clean.obs[0], disturbed.obs[0])
    assert 1e-4 < np.abs(clean.obs - disturbed.obs)[:, :2].max() < 0.2
    _, *again = shlex.split(disturbed.meta["command"])
    assert diffclone(*again, "--out", tmp_path / "again.npz").code == 0
    assert Demonstrations.load(tmp_path / "again.npz").fingerprint == disturbed.fingerprint


@pytest.mark.parametrize("name", ["maze", "fetch-pick", "walker"])
def test_an_expert_answers_a_disturbance(name: str) -> None:
    expert, found = TASKS[name].expert(noise=0.0), list[Episode]()
    env = TASKS[name].make(1)
    expert.set_environment(env)
    for level in (0.0, 0.1):
        disturb = gaussian_disturbance(level, [0])
        found.append(run_episode(env, expert, np.random.default_rng(0), 20, disturb=disturb))
    env.close()
    clean, disturbed = found
    assert np.array_equal(clean.act[0], disturbed.act[0])  # the first action is chosen before any disturbance
    assert not np.allclose(clean.act[-1], disturbed.act[-1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("spiral", "--disturbance", "-1"), r"disturbance must not be negative; it is -1\.0"),
        (
            ("spiral", "--options", "colour=1"),
            "the expert of 'spiral' has no option 'colour'; it has noise, start_noise",
        ),
        (("spiral", "--options", "noise"), "an option is NAME=VALUE; it was given 'noise'"),
        (("spiral", "--options", "noise=much"), "the option noise of .* is a number; it was given 'much'"),
        (("spiral", "--options", "start_noise=-1"), r"noise must not be negative; it is -1\.0"),
        (("spiral", "--options", "start_noise=5"), "Its options make the task too hard for it"),
        (("spiral", "--weights", "mine.safetensors"), "the expert of 'spiral' has no option 'weights'"),
        (("walker", "--weights", "mine.safetensors"), r"no such file: mine\.safetensors"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_of_collect_are_one_line(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("diffclone.tasks.experts.MAX_TRIES", 3)
    assert_error(diffclone("collect", *arguments, "--episodes", "1", "--out", "one.npz"), message)
    assert list(tmp_path.iterdir()) == []


# Evaluate.


def test_evaluate_with_options(diffclone: Command, trained: Path) -> None:
    flags = ("--episodes", "2", "--options", "end_on_success=false", "start_noise=0", "--json")
    result = diffclone("evaluate", trained, *flags)
    assert result.code == 0, result.err
    results = json.loads(result.out)["results"]
    assert results["options"] == {"end_on_success": False, "start_noise": 0.0}
    assert results["mean_length"] == 400
    assert Record.read_all(trained / "records.jsonl")[-1].results == results


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "colour=1",
            "the task 'maze' has no option 'colour'; it has start_noise, goal_noise, coverage, end_on_success",
        ),
        ("coverage=0", "coverage must leave at least one of 26 cells"),
        ("end_on_success=1", r"end_on_success of the task 'maze' is true or false; it was given 1\."),
        ("start_noise", "an option is NAME=VALUE"),
    ],
)
def test_wrong_options_of_evaluate_are_one_line(diffclone: Command, trained: Path, option: str, message: str) -> None:
    before = (trained / "records.jsonl").read_bytes()
    assert_error(diffclone("evaluate", trained, "--options", option), message)
    assert (trained / "records.jsonl").read_bytes() == before


# Render.


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace rendering by grey images, each a bit brighter than the one before."""
    count: list[int] = []

    def draw(env: object, row: int) -> npt.NDArray[np.uint8]:
        count.append(row)
        return np.full((32, 48, 3), len(count) % 200, dtype=np.uint8)

    for batch in (MazeBatch, SpiralBatch):
        monkeypatch.setattr(batch, "render", draw)
    return count


def test_render_a_strip_of_the_expert(diffclone: Command, tmp_path: Path) -> None:
    path = tmp_path / "new" / "pick.png"
    try:
        render_episode(replace(TASKS["spiral"], horizon=1), None)
    except CannotRender as error:
        pytest.skip(str(error))
    result = diffclone("render", "fetch-pick", "--out", path, "--options", "start_noise=2", "--start", "1")
    assert result.code == 0, result.err
    assert re.fullmatch(rf"wrote {re.escape(str(path))}: \d\d steps, return -\d+\.\d, solved\n", result.err)
    strip = imageio.imread(path)
    assert strip.shape == (360, 4 * 480, 3)
    quarters = np.split(strip.astype(int), 4, axis=1)
    assert all(np.abs(a - b).max() > 50 for a, b in pairwise(quarters))


@pytest.mark.usefixtures("rendered")
@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_video_has_a_frame_before_each_step_and_one_after_the_last(
    diffclone: Command, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"spiral{suffix}"
    result = diffclone("render", "spiral", "--out", path)
    assert result.code == 0, result.err
    assert "160 steps" in result.err
    frames = imageio.imread(path)
    assert frames.shape == (161, 32, 48, 3)
    assert np.abs(frames.mean((1, 2, 3)) - np.arange(1, 162)).max() < 8  # in order


@pytest.mark.usefixtures("rendered")
def test_every_image_is_reported_so_that_a_long_episode_is_not_silent() -> None:
    seen: list[tuple[int, int]] = []
    render_episode(TASKS["spiral"], None, on_frame=lambda done, most: seen.append((done, most)))
    assert seen == [(k, 161) for k in range(1, 162)]


def test_only_the_steps_that_are_shown_are_rendered(diffclone: Command, rendered: list[int], tmp_path: Path) -> None:
    result = diffclone("render", "spiral", "--steps", "7", "--out", tmp_path / "spiral.gif")
    assert "160 steps" in result.err, "the episode is run to its end"
    assert len(rendered) == len(imageio.imread(tmp_path / "spiral.gif")) == 8


@pytest.mark.usefixtures("rendered")
def test_render_a_video_of_a_policy(diffclone: Command, trained: Path, tmp_path: Path) -> None:
    films = [tmp_path / f"{member}.gif" for member in (0, 1)]
    for member, path in enumerate(films):
        result = diffclone("render", "maze", "--policy", trained, "--member", str(member), "--out", path)
        assert result.code == 0, result.err
        assert re.search(r"\d+ steps from start 1, return \d+\.\d, (not )?solved\n", result.err)
    assert_error(
        diffclone("render", "maze", "--policy", trained, "--member", "2", "--out", tmp_path / "c.gif"),
        r"member 2 does not exist; the policy has members 0 to 1",
    )


@pytest.mark.usefixtures("rendered")
def test_render_two_policies_side_by_side(diffclone: Command, trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "both.webp"
    brief = ("--starts", "1", "--every", "8", "--width", "98", "--start", "3")
    result = diffclone("render", trained, "--beside", trained, *brief, "--out", path)
    assert result.code == 0, result.err
    assert re.search(r"solved [01] of 1, .* solved [01] of 1\n", result.err)
    frames = list(imageio.imiter(path))
    assert len(frames) > 3
    assert {frame.shape for frame in frames} == {(66, 98, 3)}  # a line of text above two images of 32 × 48, and a gap


def test_joined_episodes_wait_for_the_longest_and_say_how_they_ended() -> None:
    black, grey = (np.full((32, 200, 3), shade, np.uint8) for shade in (0, 90))
    short, long = RenderedEpisode([black, grey], 1.0, True, 1), RenderedEpisode([black] * 5, 0.0, False, 4)
    frames = join_episodes(["A", "B"], [short, long], with_outcome=True)
    assert len(frames) == 5 + LAST
    assert all((frame[BAR:, :200] == 90).all() for frame in frames[1:])  # the last image stays
    left = [frame[:BAR, :200] for frame in frames]
    assert not np.array_equal(left[1], left[2])  # "A", then "A: solved"
    assert np.array_equal(left[2], left[-1])
    assert not np.array_equal(frames[4][:BAR, 204:], frames[5][:BAR, 204:])
    plain = join_episodes(["A", "B"], [short, long], with_outcome=False)
    assert np.array_equal(plain[0][:BAR], plain[-1][:BAR])


def test_a_grid_has_all_starts_of_a_policy_in_order_and_counts_those_that_were_solved() -> None:
    long = [
        RenderedEpisode([np.full((30, 40, 3), shade, np.uint8)] * 4, 0.0, False, 3) for shade in range(100, 170, 10)
    ]
    short = [RenderedEpisode(episode.frames[:2], 1.0, True, 1) for episode in long]
    frames = join_grid([["A"], ["B"]], [short, long], range(7), with_outcome=True, width=520)
    assert len(frames) == 4 + LAST_OF_GRID
    (shape,) = {frame.shape for frame in frames}
    assert shape[1:] == (520, 3)
    assert shape[0] % 2 == 0
    wide = (520 - LABEL) // COLUMNS
    end = frames[-1]
    shades = [int(end[10, LABEL + GAP + 4 + wide * k, 0]) for k in range(COLUMNS)]
    assert shades == [100, 110, 120, 130, 140, 150]  # the seventh start is in a second line
    assert not (end == 160).all(axis=2)[:40].any()
    greens, reds = ((end == COLOURS[name]).all(axis=2).any(axis=1) for name in ("solved", "not solved"))
    assert 0 < greens.argmax() < reds.argmax()  # the rows of A, which solved all, are above those of B
    assert not (frames[1] == COLOURS["solved"]).all(axis=2).any()  # nothing is said before an episode has ended
    assert (frames[2] == COLOURS["solved"]).all(axis=2).any()
    counts = [frame[: shape[0] // 2, :LABEL] for frame in frames]
    assert not np.array_equal(counts[1], counts[2])  # "solved 0 of 7", then "solved 7 of 7"
    returns = join_grid([["A"], ["B"]], [short, long], range(7), with_outcome=False, width=520)
    assert not any((returns[-1] == COLOURS[name]).all(axis=2).any() for name in ("solved", "not solved"))


@pytest.mark.usefixtures("rendered")
def test_render_two_policies_from_several_starts(diffclone: Command, trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "all.webp"
    result = diffclone(
        "render", trained, "--beside", trained, "--starts", "2", "--every", "8", "--width", "300", "--out", path
    )
    assert result.code == 0, result.err
    solved = [int(count) for count in re.findall(r"solved (\d) of 2", result.err)]
    assert len(solved) == 2
    assert {frame.shape[1] for frame in imageio.imiter(path)} == {300}
    # The starts are the first ones: each alone has the same outcome.
    alone = [diffclone("render", trained, "--start", k, "--out", tmp_path / f"{k}.gif").err for k in (0, 1)]
    assert solved[0] == sum(", solved" in err for err in alone)


@pytest.mark.usefixtures("rendered")
def test_render_the_first_steps_of_a_pretrained_policy(diffclone: Command, tmp_path: Path) -> None:
    path = tmp_path / "first.gif"
    result = diffclone("render", "spiral", "--policy", "pretrained", "--steps", "4", "--out", path)
    assert result.code == 0, result.err
    assert "160 steps" in result.err  # the whole episode was run
    assert len(imageio.imread(path)) == 5


@pytest.mark.usefixtures("rendered")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("spiral", "--out", "there.gif"), r"there\.gif exists already and is not overwritten"),
        (("spiral", "--out", "video.avi"), r"images are written as \.mp4, \.gif, \.webp or \.png; .* ends in \.avi"),
        (("spiral", "--out", "video"), "video ends in nothing"),
        (("spirall", "--out", "video.gif"), "unknown task 'spirall'; did you mean 'spiral'"),
        (("spiral", "--out", "video.gif", "--options", "colour=1"), "the task 'spiral' has no option 'colour'"),
        (("spiral", "--out", "video.gif", "--policy", "none"), "none is not a run"),
        (("spiral", "--out", "video.gif", "--start", "-1"), "--start must be at least 0; it is -1"),
        (("spiral", "--out", "video.gif", "--steps", "0"), "--steps must be at least 1; it is 0"),
        (("spiral", "--out", "video.gif", "--every", "0"), "--every must be at least 1; it is 0"),
        (("spiral", "--out", "video.gif", "--beside", "x"), "x is not a run"),
        (("spiral", "--out", "video.gif", "--starts", "0"), "--starts must be at least 1; it is 0"),
        (("spiral", "--out", "video.gif", "--starts", "2"), "--starts 2 shows two policies; name the second with --b"),
        (
            ("spiral", "--out", "video.gif", "--starts", "9", "--beside", "x", "--width", "400"),
            "--width is 400; 9 starts need at least 484",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_of_render_are_one_line(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.gif").write_bytes(b"precious")
    assert_error(diffclone("render", *arguments), message)
    assert [path.name for path in tmp_path.iterdir()] == ["there.gif"]
    assert Path("there.gif").read_bytes() == b"precious"


def test_a_wrong_suffix_is_reported_before_the_episode_runs(
    diffclone: Command, tmp_path: Path, rendered: list[int]
) -> None:
    assert_error(diffclone("render", "spiral", "--out", tmp_path / "video.avi"), "images are written as")
    assert rendered == []


def test_a_machine_that_cannot_render_is_one_line(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no OpenGL")

    monkeypatch.setattr("mujoco.Renderer", fail)
    assert_error(
        diffclone("render", "spiral", "--out", tmp_path / "video.gif"),
        "MuJoCo cannot render here .*(OSError|no display)",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_strip_shows_the_first_and_the_last(tmp_path: Path) -> None:
    pictures = [np.full((16, 16, 3), shade, dtype=np.uint8) for shade in range(0, 250, 25)]
    write_frames(tmp_path / "strip.png", pictures)
    assert imageio.imread(tmp_path / "strip.png")[0, ::16, 0].tolist() == [0, 75, 150, 225]


# Experts.


def test_evaluate_an_expert_that_is_a_network(diffclone: Command, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    weights = Path(str(importlib.resources.files("diffclone.assets") / "experts" / "hand-rotate.safetensors"))
    flags = ("--weights", weights, "--episodes", "2", "--options", "noise=0")
    result = diffclone("expert", "evaluate", "hand-rotate", *flags, "--out", records, "--json")
    assert result.code == 0, result.err
    (record,) = Record.read_all(records)
    assert json.loads(result.out)["results"] == record.results
    assert (record.kind, record.settings["expert"]) == ("expert", "NetworkExpert")
    assert (record.results["task"], record.results["episodes"]) == ("hand-rotate", 2)
    demos = tmp_path / "mine.npz"
    assert diffclone("collect", "hand-rotate", "--weights", weights, "--episodes", "1", "--out", demos).code == 0
    assert Demonstrations.load(demos).num_episodes == 1


def test_evaluate_an_expert_that_is_a_program(diffclone: Command) -> None:
    steady = json.loads(diffclone("expert", "evaluate", "spiral", "--episodes", "3", "--json").out)["results"]
    shaking = diffclone("expert", "evaluate", "spiral", "--episodes", "3", "--options", "noise=1", "--json")
    assert steady["success_rate"] == 1
    assert steady["mean_length"] == 160
    assert json.loads(shaking.out)["results"]["success_rate"] < 1
    noisy = json.loads(diffclone("expert", "evaluate", "spiral-1", "--episodes", "30", "--json").out)["results"]
    assert (noisy["setting"], noisy["task"], noisy["options"]) == ("spiral-1", "spiral", {"start_noise": 0.05})
    assert noisy["success_rate"] < 1
    table = diffclone("expert", "evaluate", "spiral", "--episodes", "3").out
    assert re.search(r"spiral .* 100\.0 % .* 160", table)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "walker", "--out", "a.safetensors"), r"python -m scripts\.train_expert walker --out FILE"),
        (("evaluate", "waker"), "unknown task 'waker'; did you mean 'walker'"),
        (("evaluate", "spiral", "--episodes", "0"), "at least one episode must be run; 0 were requested"),
        (("evaluate", "spiral", "--options", "colour=1"), "the expert of 'spiral' has no option 'colour'"),
        (("evaluate", "walker", "--weights", "none.safetensors"), r"no such file: none\.safetensors"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_of_expert_are_one_line(
    diffclone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_error(diffclone("expert", *arguments), message)
    assert list(tmp_path.iterdir()) == []
