import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, SearchResult, Training, evaluate, fit, search
from diffclone.cli.stages import announce
from diffclone.fit import FitOptions, fit_with_options
from diffclone.guides import GANGuide
from diffclone.nn.encoder import Encoder
from diffclone.tasks import TASKS
from diffclone.training import Progress, display, time_left
from diffclone.training.display import Bars, NotebookLine, Stage, find_style
from diffclone.training.estimate import ROWS, estimate_seconds, first_steps, limit_updates, stage_updates
from diffclone.training.time_left import TimeLeft, about, describe_plan, format_time

SHORT = Training(updates=33)
SMALL = BC(training=SHORT, network=Network(width=8, depth=1))
LOSSES = [
    {},
    {"L_BC": np.nan},
    {"L_BC": 1e-12, "L_DM": -1e20},
    {f"held_out/L_number_{k}": value for k, value in enumerate((np.inf, 1e20, 1e-12, np.nan, 123456.789))},
    {"a name that is much longer than any line of any terminal" * 3: 1.0},
]


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 100.0
        for module in (display, time_left):
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def line_demonstrations() -> Demonstrations:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(60, 3)).astype(np.float32)
    return Demonstrations.from_arrays(obs, obs[:, :2], episode_ends=[30, 60])


def report(update: int, losses: dict[str, float] | None = None, stage: str = "policy", updates: int = 1000) -> Progress:
    values = {name: np.array([value]) for name, value in (losses or {"L_BC": 0.5}).items()}
    return Progress(stage, update, updates, values, 1.0, 123456.789, members=3, execution="2 cores")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.2, "under 1 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (380.123, "6 min 20 s"),
        (3600.0, "1 h"),
        (7500.0, "2 h 5 min"),
        (3.6e8, "100,000 h"),
        (-3.0, "0 s"),
        (float("nan"), "unknown time"),
    ],
)
def test_times_are_written_as_people_say_them(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


def test_estimates_are_rounded() -> None:
    found = [about(seconds) for seconds in (0.1, 7.2, 43.0, 58.0, 100.0, 380.0, 1234.0, 9000.0)]
    assert found == ["1 s", "7 s", "45 s", "1 min", "1 min 30 s", "6 min 30 s", "21 min", "2 h 30 min"]
    assert describe_plan({"guide": 240.0, "policy": 118.0}) == "about 6 min: guide 4 min, policy 2 min"
    assert describe_plan({"policy": 20.0}) == "about 20 s"


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("width", [40, 79, 80, 119])
@pytest.mark.parametrize("label", ["x", "a stage with a name that is longer than the line " * 3])
def test_a_line_fits_whatever_the_losses(losses: dict[str, float], width: int, label: str) -> None:
    values = [f"{name} {value:.3g}" for name, value in losses.items()]
    for done, left in ((0, None), (12_345, 1e9), (10**9, 0.0)):
        stage = Stage(label, 10**9, 0.0, done, values, left)
        assert 0 < len(stage.bar(width)) <= width
        assert 0 < len(stage.line(width)) <= width
    if label == "x" and width == 80 and losses:
        assert ("L_BC" in stage.line(width)) == ("L_BC" in losses)


def test_a_long_name_leaves_room_for_the_stage_and_the_progress() -> None:
    stage = Stage("metaworld/stick-pull-20-tuning-velocity-chunks-859ca1a7: policy × 4", 4000, 0.0, 1234, left=71.0)
    assert stage.line(80).endswith(": policy × 4: 1,234 of 4,000, 1 min 11 s left")
    assert len(stage.line(80)) == 80
    assert ": policy × 4  " in stage.bar(80)


@pytest.mark.parametrize("losses", LOSSES)
def test_a_bar_in_a_terminal_stays_in_one_line_of_80_columns(clock: Clock, losses: dict[str, float]) -> None:
    stream = io.StringIO()
    bars = Bars("terminal", stream)
    bars._width = lambda: 79  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    for update in range(32, 1001, 32):
        clock.now += 1
        bars.training("dbc", report(update, losses))
    bars.training("dbc", report(1000, losses))
    bars.training("dbc", report(1000, losses))
    bars.close()
    text = stream.getvalue()
    assert text.count("\n") == 1, "one line is left of a stage"
    assert text.endswith("\n")
    drawn = [part for part in re.split(r"\r|\x1b\[K|\n", text) if part]
    assert len(drawn) == 32
    assert max(map(len, drawn)) <= 79
    assert "left" in drawn[5]
    assert not re.search(r"\x1b\[[\d;]*m", text), "no colours"


def test_a_message_removes_the_bar_first(clock: Clock) -> None:
    stream = io.StringIO()
    bars = Bars("terminal", stream)
    bars.clear()
    assert stream.getvalue() == ""
    clock.now += 1
    bars.update("x", 1, 10)
    bars.clear()
    bars.clear()
    assert stream.getvalue().endswith("\r\x1b[K")
    assert stream.getvalue().count("\r\x1b[K") == 1


def test_a_log_has_a_line_every_few_seconds_and_none_twice(clock: Clock) -> None:
    stream = io.StringIO()
    bars = Bars("lines", stream)
    times: list[float] = []
    for second in range(1, 601):
        clock.now += 1
        before = len(stream.getvalue())
        bars.training("", report(second, {"L_BC": 1e20}, updates=601))
        if len(stream.getvalue()) > before:
            times.append(second)
    bars.training("", report(601, updates=601))
    bars.close()
    lines = stream.getvalue().splitlines()
    assert times[:3] == [5, 10, 17]
    assert max(np.diff(times)) <= 11  # a reader sees that it is still running
    assert len(lines) == len(set(lines)) == len(times) + 1
    assert max(map(len, lines)) <= 80
    assert lines[0] == "policy × 3: 5 of 601, 9 min 56 s left, L_BC 1e+20, 1.23e+05/s, 2 cores"
    assert lines[-1].startswith("policy × 3: 601 in 10 min")


def test_short_work_adds_nothing_to_a_log(clock: Clock) -> None:
    stream = io.StringIO()
    bars = Bars("lines", stream)
    for done in (1, 2, 3):
        clock.now += 1
        bars.update("episodes", done, 3)
    bars.close()
    assert stream.getvalue() == ""


def test_a_stage_that_ended_early_has_no_time_left(clock: Clock) -> None:
    stream = io.StringIO()
    bars = Bars("terminal", stream)
    for update in (100, 200, 300):
        clock.now += 10
        bars.training("", report(update))
    assert "left" in stream.getvalue()
    bars.close()
    last = stream.getvalue().split("\r")[-1]
    assert last.startswith("policy × 3: 300 of 1,000")
    assert "left" not in last


def test_stages_of_parallel_jobs_end_once_each(clock: Clock) -> None:
    stream = io.StringIO()
    bars = Bars("terminal", stream)
    for done in range(1, 11):
        for job in ("a", "b"):
            clock.now += 0.7
            bars.update(job, done, 10)
    assert [line.split("\r")[-1][:5] for line in stream.getvalue().split("\n")] == ["a: 10", "b: 10", ""]


def test_ascii_terminals_get_ascii(clock: Clock) -> None:
    raw = io.BytesIO()
    bars = Bars("terminal", io.TextIOWrapper(raw, "ascii", write_through=True))
    clock.now += 1
    bars.training("dbc", report(500))
    assert "dbc: policy x 3" in raw.getvalue().decode()
    assert "######------" in raw.getvalue().decode()


def test_the_time_left_uses_the_plan_for_later_stages(clock: Clock) -> None:
    left = TimeLeft({"guide": 100.0, "policy": 50.0})
    assert left.report("guide", 10, 100) == pytest.approx(140)
    clock.now += 10
    assert left.report("guide", 20, 100) == pytest.approx(80 + 50)
    for done in range(21, 99):
        clock.now += 2  # the machine has become slower
        left.report("guide", done, 100)
    clock.now += 2
    assert left.report("guide", 99, 100) == pytest.approx(2 + 50 * (10 + 80 * 2) / 90)
    clock.now += 2
    left.report("policy", 10, 100)
    clock.now += 10
    assert left.report("policy", 20, 100) == pytest.approx(80)
    assert TimeLeft().report("anything", 1, 10) is None


def test_a_stage_that_the_plan_lacks_has_its_own_time(clock: Clock) -> None:
    left = TimeLeft({"guide": 100.0})
    left.report("other", 0, 10)
    clock.now += 5
    assert left.report("other", 5, 10) == pytest.approx(5)


# fit


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_fit_is_silent_where_stderr_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for progress in (None, False):
        fit(SMALL, line_demonstrations(), device="cpu", progress=progress)
    assert capsys.readouterr() == ("", "")


def test_fit_shows_a_bar_in_a_terminal_and_the_weights_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = DiffusionGuide(training=SHORT, width=8, depth=1)
    method = DBC(training=SHORT, network=Network(width=8, depth=1), guide=guide)
    expected = fit(method, line_demonstrations(), device="cpu", progress=False)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    shown = fit(method, line_demonstrations(), device="cpu")
    lines = stream.getvalue().split("\n")
    assert [line.split("\r")[-1].split(":")[0] for line in lines] == ["guide", "policy", ""]
    for a, b in zip(expected.net.parameters(), shown.net.parameters(), strict=True):
        assert a.equal(b)
    stream.truncate(0)
    fit(SMALL, line_demonstrations(), device="cpu", progress=False)
    seen: list[Progress] = []
    fit(SMALL, line_demonstrations(), device="cpu", progress=seen.append)
    monkeypatch.setenv("TERM", "dumb")
    fit(SMALL, line_demonstrations(), device="cpu")
    assert stream.getvalue().strip("\0") == ""
    assert [now.update for now in seen] == [32, 33]


def test_fit_shows_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[NotebookLine] = []

    class Handle:
        def update(self, line: NotebookLine) -> None:
            shown.append(line)

    def show(line: NotebookLine, *, display_id: bool) -> Handle:
        assert display_id
        shown.append(line)
        return Handle()

    class ZMQInteractiveShell:
        pass

    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = ZMQInteractiveShell  # pyright: ignore[reportAttributeAccessIssue]
    module.display = show  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    assert find_style() == "notebook"
    fit(SMALL, line_demonstrations(), device="cpu")
    html: Any = shown[-1]._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert '<progress value="33" max="33">' in html
    assert "policy: 33 in" in repr(shown[-1])
    assert capsys.readouterr().err == ""
    package.get_ipython = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    assert find_style() == "lines", "IPython in a terminal is a terminal"


def test_evaluate_shows_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = fit(SMALL, TASKS["maze"].demonstrations().take([0]), seeds=(0, 1), device="cpu", progress=False)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    counts: list[tuple[int, int]] = []

    def count(done: int, total: int) -> None:
        counts.append((done, total))

    expected = evaluate(policy, "maze", episodes=2, progress=False)
    evaluate(policy, "maze", episodes=2, progress=count)
    assert stream.getvalue() == ""
    assert counts[-1] == (4, 4)
    shown = evaluate(policy, "maze", episodes=2)
    assert stream.getvalue().split("\r")[-1].startswith("running maze: 4 in ")
    assert np.array_equal(shown.returns, expected.returns)


def test_search_shows_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(folder: Path, demos: Any, options: Any, progress: Any = None, plan: Any = None) -> SearchResult:
        if progress is not None:
            progress("final training", report(500))
            progress("final training", report(1000))
        return SearchResult(policy, (), None, (), 1.0)

    policy = fit(SMALL, line_demonstrations(), device="cpu")
    monkeypatch.setattr("diffclone.training.search.search_in_folder", find)
    stages: list[str] = []
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    search(line_demonstrations(), progress=lambda stage, now: stages.append(stage))
    search(line_demonstrations(), progress=False)
    assert (stages, stream.getvalue()) == (["final training"] * 2, "")
    search(line_demonstrations())
    assert stream.getvalue().split("\r")[-1].startswith("final training: policy × 3: 1,000 in ")


def test_evaluate_is_silent_where_stderr_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    policy = fit(SMALL, TASKS["maze"].demonstrations().take([0]), device="cpu")
    evaluate(policy, "maze", episodes=1)
    assert capsys.readouterr() == ("", "")


def test_a_notebook_shows_where_a_stage_ended_early(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[NotebookLine] = []
    module = ModuleType("IPython.display")

    def show(line: NotebookLine, *, display_id: bool) -> None:
        shown.append(line)

    module.display = show  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    bars = Bars("notebook")
    bars.stages["x"] = Stage("x", 1000, 0.0, 250)
    bars.close()
    assert [repr(line) for line in shown] == ["x: 250 of 1,000"]


# Estimates.


def test_an_estimate_has_every_stage_and_does_not_change_the_weights() -> None:
    guide = DiffusionGuide(training=Training(updates=40), width=8, depth=1)
    method = DBC(training=SHORT, network=Network(width=8, depth=1), guide=guide)
    demos = line_demonstrations()
    options = FitOptions(seeds=(0, 1), device="cpu")
    before = fit_with_options(method, demos, options).policy
    seconds = estimate_seconds(method, demos, options)
    after = fit_with_options(method, demos, options).policy
    assert list(seconds) == ["guide", "policy"]
    assert all(value > 0 for value in seconds.values())
    assert all(a.equal(b) for a, b in zip(before.net.parameters(), after.net.parameters(), strict=True))


def test_updates_are_counted_by_stage() -> None:
    dbc = DBC(training=SHORT, guide=DiffusionGuide(training=Training(updates=7)), encoder=Encoder())
    assert stage_updates(dbc) == {"encoder": Encoder().training.updates, "guide": 7, "policy": 33}
    assert stage_updates(limit_updates(dbc, 3)) == {"encoder": 3, "guide": 3, "policy": 3}
    assert stage_updates(DBC(training=SHORT, guide=GANGuide())) == {"policy": 33}


def test_the_estimate_has_the_longest_episode_so_that_windows_fit() -> None:
    steps = np.zeros((2 * ROWS + 30, 1), np.float32)
    demos = Demonstrations.from_arrays(steps, steps, episode_ends=[*range(10, 2 * ROWS + 1, 10), 2 * ROWS + 30])
    assert first_steps(demos).lengths.max() == demos.lengths.max() > 30
    assert first_steps(demos).num_steps < 1.1 * ROWS


def test_a_part_that_ended_early_is_not_cached(tmp_path: Path) -> None:
    guide = DiffusionGuide(training=Training(updates=64, lr=1e-3), width=8, steps=10)
    method = DBC(training=SHORT, network=Network(width=8, depth=1), guide=guide)
    options = FitOptions(device="cpu", cache=tmp_path, enough=lambda now: now.update >= 32)
    fit_with_options(method, line_demonstrations(), options, lambda now: None)
    assert not list(tmp_path.rglob("*.safetensors"))
    fit_with_options(method, line_demonstrations(), replace(options, enough=None), lambda now: None)
    assert list(tmp_path.rglob("*.safetensors"))


def test_a_stage_ends_when_it_is_enough() -> None:
    reports: list[Progress] = []
    options = FitOptions(device="cpu", snapshots=(10, 33), enough=lambda now: now.update >= 32)
    fitted = fit_with_options(SMALL, line_demonstrations(), options, reports.append)
    assert [now.update for now in reports] == [32]
    assert list(fitted.snapshots) == [10]


def test_the_time_is_announced_for_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("diffclone.cli.stages.print_message", said.append)
    plan = {"guide": 240.0, "policy": 120.0}

    def after_6_seconds(stage: str, rate: float, update: int = 100) -> Progress:
        return replace(report(update, stage=stage), rate=rate, seconds=6.0)

    announce(plan, after_6_seconds("guide", 1000 / 240))
    found = announce(plan, after_6_seconds("guide", 1000 / 480))  # the machine has become slower
    assert found["policy"] == pytest.approx(240)
    announce(plan, after_6_seconds("policy", 1000 / 120))  # the guide is in the cache
    announce(plan, after_6_seconds("policy", 1000 / 120, update=500))  # resumed
    announce({"policy": 5.0}, after_6_seconds("policy", 1000.0))
    assert said == [
        "about 5 min 30 s: guide 3 min 30 s, policy 2 min.",
        "about 11 min: guide 7 min 30 s, policy 4 min.",
        "about 2 min.",
        "about 1 min.",
    ]
