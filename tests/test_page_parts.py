import dataclasses
import io
import json
import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from diffclone.data import Demonstrations
from diffclone.data.inspection.overview import compare_profiles, map_states
from diffclone.reports.claim_cards import make_cards
from diffclone.reports.episode_player import PlayedEpisode, make_player
from diffclone.reports.inspection_figures import draw_histograms, draw_lengths_and_scores
from diffclone.reports.intervals import Interval, IntervalPlot
from diffclone.reports.number_table import NumberRow, make_plots
from diffclone.reports.page import Page, Section, Table, render_page, security_policy
from diffclone.reports.provenance import redo_command
from diffclone.reports.videos import Video
from example_pages import CLAIM, make_claims
from example_results import cell, grid, make_table, record


def curved(episodes: int = 8, odd: int = 3) -> Demonstrations:
    """Return episodes on a line in three dimensions, one of which is elsewhere in the second."""
    time = np.linspace(0, 1, 30)
    obs = np.concatenate(
        [np.stack([time * 10, 5.0 * (k == odd) + 0.1 * np.sin(k + time), np.full(30, 2.0)], 1) for k in range(episodes)]
    )
    return Demonstrations.from_arrays(obs, obs[:, :1], episode_ends=30 * np.arange(1, episodes + 1))


def test_an_axis_holds_all_numbers_and_has_round_ticks() -> None:
    rows = [
        Interval("a", "1", 1.0, (-4.0, 6.0), margin=2.0),
        Interval("b", "8", 8.0, other=12.0, other_interval=(9.0, 15.0)),
    ]
    plot = IntervalPlot("", "points", rows, reference=0.0)
    low, high = plot.limits
    assert low < -4
    assert high > 15
    assert [text for _, text in plot.ticks] == ["0", "5", "10", "15"]
    assert plot.at(low) == 0
    assert plot.at(high) == 100
    assert 0 < plot.at(0.0) < plot.at(8.0) < plot.at(12.0) < 100
    left, width = (float(x) for x in re.findall(r"[\d.]+", plot.span((0.0, 8.0))))
    assert left + width == pytest.approx(plot.at(8.0), abs=0.02)
    assert IntervalPlot("", "success", rows, bounds=(0.0, 10.0)).limits == (0, 10)


def test_a_logarithmic_axis() -> None:
    plot = IntervalPlot("", "ms", [Interval("a", "", 0.1), Interval("b", "", 1000.0)], log=True, reference=1.0)
    assert [text for _, text in plot.ticks] == ["0.1", "1", "10", "100", "1,000"]
    assert plot.at(10.0) == pytest.approx(50, abs=0.1)
    equal = IntervalPlot("", "times", [Interval("a", "", 1.0)], log=True, reference=1.0)
    assert equal.at(1.0) == 50
    assert [text for _, text in equal.ticks] == ["1"]


def test_an_empty_plot_has_an_axis() -> None:
    assert IntervalPlot("", "x", [Interval("a", "–")]).limits == (-1.0, 1.0)


def test_claims_with_a_verdict_come_first_and_those_not_run_last() -> None:
    cards = make_cards(make_claims())
    assert [card.name for card in cards] == ["above", "level", "fast", "ibc"]
    assert [(s.verdict, s.count) for s in cards[0].shares] == [("reproduced", 1), ("unresolved", 1)]
    assert cards[3].plots == ()
    assert cards[3].absent == ("Maze, the paper's recipe (missing: IBC, tuned)",)
    line = cards[0].plots[0].rows[1]
    assert (line.text, line.other_text, line.status) == ("+29.8", "+18.0 … +40.1", "reproduced")
    assert line.about == "DBC (paper) − BC (paper); 10 × 100 seeds × starts; margin 2.0 points"


def test_a_quick_test_has_no_verdict_on_its_card() -> None:
    table = dataclasses.replace(make_claims(), rows=(dataclasses.replace(CLAIM, quick=True, verdict="reproduced"),))
    (card,) = make_cards(table)
    assert [share.verdict for share in card.shares] == ["quick"]
    assert card.plots[0].rows[0].status == "quick"


def test_a_plot_has_our_numbers_beside_the_papers() -> None:
    sheet = make_table("main-table", grid(("BC", "DBC"), ("Maze",)))
    (plot,) = make_plots(sheet)
    assert plot.title == "Maze"
    assert [(row.text, row.other_text) for row in plot.rows] == [
        ("90.0", "paper 88.0 ± 2.5"),
        ("83.0", "paper 81.0 ± 2.5"),
    ]
    assert plot.rows[0].other_interval == (85.5, 90.5)
    quick = make_plots(dataclasses.replace(sheet, quick=True))[0].rows[0]
    assert (quick.other, quick.other_text) == (None, "")


def test_a_plot_counts_what_has_no_number_and_does_not_draw_it() -> None:
    cells = [cell(name, "Maze", None if name == "BC" else 90.0, None) for name in ("DBC", "VAE", "BC")]
    (plot,) = make_plots(make_table("open-questions", cells))
    assert [row.label for row in plot.rows] == ["DBC", "VAE"]
    assert plot.absent == "Not run: 1 more variant."


def test_columns_of_numbers_are_known() -> None:
    rows = [["a", "1,200", "−0.5", "0.1 … 0.2", "", "3"], ["b", "7", "–", "0.3 … 0.4", "", "x"]]
    table = Table("All", ("name", "steps", "mean", "range", "empty", "mixed"), rows)
    assert table.numeric == {1, 2}


def test_a_histogram_of_steps_has_bins_of_equal_size() -> None:
    lengths = np.arange(31, 51)
    axes = draw_lengths_and_scores(lengths, np.zeros(20)).figure.axes[0]
    bars: Any = axes.patches[0]
    assert set(np.diff(bars.get_data().edges)) == {1.0}
    assert set(bars.get_data().values) == {1}


def test_a_histogram_labels_its_ends_and_bounds_and_says_what_is_constant() -> None:
    values = np.stack([np.linspace(-4, 1, 100), np.full(100, 0.5)], 1)
    first, second = draw_histograms("act", values, (np.array([-2.0, np.inf]), np.array([2.0, np.inf]))).figure.axes
    assert [tick.get_text() for tick in first.get_xticklabels()] == ["−4", "−2", "2"]
    assert [tick.get_text() for tick in second.get_xticklabels()] == ["0.5 (constant)"]


def test_a_row_names_only_what_task_and_method_do_not_say() -> None:
    sheet = make_table("main-table")
    assert NumberRow(sheet, cell("BC", "Maze", 1.0)).what == "–"
    assert NumberRow(
        sheet, dataclasses.replace(cell("DBC (ours)", "FetchPick", 1.0), task="fetch-pick", method="dbc")
    ).what == ("DBC (ours)")


@pytest.mark.parametrize(
    ("kind", "results", "shown", "command"),
    [
        ("evaluation", {"task": "maze", "episodes": 100}, True,
         "diffclone reproduce main-table --only maze,dbc --seeds 5 --source ours --episodes 100"),
        ("curves", {"task": "maze", "experiment": "loss-curves"}, True,
         "diffclone reproduce main-table --only maze --seeds 5 --source ours"),
        ("evaluation", {"study": "fresh", "setting": "maze-25", "task": "maze"}, False,
         "diffclone reproduce training-length --only maze-25"),
        ("evaluation", {"task": "maze", "preset": "maze/dbc/paper"}, False,
         "python -m scripts.paper_recipe evaluate maze dbc 0-4 --preset paper"),
        ("evaluation", {"task": "maze"}, False, "diffclone reproduce claims --only maze,dbc"),
    ],
)  # fmt: skip
def test_a_record_has_the_command_that_makes_it_again(
    kind: str, results: dict[str, Any], *, shown: bool, command: str
) -> None:
    sheet = make_table("main-table") if shown else None
    assert redo_command(record(kind, **results), sheet) == command


def test_the_policy_of_a_page_allows_its_own_scripts_only() -> None:
    page = render_page(Page("t", "k", [], [], [Section("s", "S", [Table("c", ["a"], [["b"]])])], "diffclone x"))
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    policy = security_policy([script])
    assert policy.replace("'", "&#39;") in page
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_an_animation_has_a_still_first_frame() -> None:
    from PIL import Image

    buffer, frames = io.BytesIO(), [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    video = Video("maze", "a ball", "image/gif", buffer.getvalue())
    assert str(video.still).startswith("data:image/png;base64,")
    assert Video("maze", "a ball", "image/gif", b"no image").still is None
    assert Video("maze", "a ball", "video/mp4", b"film").still is None


def test_the_map_keeps_most_of_the_variance() -> None:
    demos = curved()
    places, method = map_states(demos, np.arange(demos.num_steps))
    assert places.shape == (240, 2)
    assert method == "PCA, 100 % of the variance"
    by_episode = places.reshape(8, 30, 2)
    others = np.delete(by_episode, 3, 0)
    assert np.linalg.norm(by_episode[3].mean(0) - others.mean((0, 1))) > 5 * others.mean(1).std(0).max()
    still = Demonstrations.from_arrays(np.ones((20, 2)), np.zeros((20, 1)), episode_ends=[10, 20])
    assert map_states(still, np.arange(20))[0].tolist() == [[0.0, 0.0]] * 20


def test_umap_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Umap:
        def __init__(self, random_state: int):
            assert random_state == 0

        def fit_transform(self, features: Any) -> Any:
            return features[:, :2] * 0 + 7

    module = SimpleNamespace(UMAP=Umap, __spec__=SimpleNamespace(name="umap"))
    monkeypatch.setitem(sys.modules, "umap", module)
    rows = np.random.default_rng(0).normal(size=(20, 4))
    demos = Demonstrations.from_arrays(rows, rows[:, :1], episode_ends=[10, 20])
    places, method = map_states(demos, np.arange(20))
    assert method == "UMAP"
    assert (places == 7).all()


def test_profiles_begin_with_the_dimension_that_differs_most() -> None:
    first, *_ = compare_profiles(curved(), [3])
    assert first.name == "obs 1"
    assert (first.lines[3] > first.high + 4).all()
    assert (first.low <= first.median).all()
    assert compare_profiles(curved(episodes=1, odd=0), [0]) == []


def test_the_player_keeps_the_numbers_of_an_episode() -> None:
    obs = np.stack([np.arange(500.0), np.zeros(500)], 1)
    episode = PlayedEpisode("episode 1", 1, unusual=True, obs=obs, act=obs[:, :1], places=obs, obs_unit="units")
    data = make_player(np.array([[0.0, 0.0], [499.0, 1.0]]), [episode]).data
    shown = data["episodes"][0]
    assert len(shown["steps"]) == 240
    assert (shown["steps"][0], shown["steps"][-1], shown["length"]) == (0, 499, 499)
    assert shown["values"][0][0] == [float(f"{step:.4g}") for step in shown["steps"]]
    assert shown["places"][-1] == [100.0, 100.0]
    assert data["panels"][0]["range"] == [0.0, 499.0]
    json.dumps(data)
