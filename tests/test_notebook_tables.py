"""What a terminal and a notebook show of an object: the numbers that matter, no arrays, and nothing that runs."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from diffclone import BC, Demonstrations, Network, Policy, Scores, SearchResult, Training, fit
from diffclone.data.inspection import find_problems, rank_episodes
from diffclone.data.notebook import html_table, list_numbers
from diffclone.data.streamed import Blocks, Streamed
from diffclone.deploy.calibration import Rule, calibrate
from diffclone.experiments.run_comparison import Comparison, compare_runs
from diffclone.records import Record
from diffclone.training.choice import Candidate
from test_compare_runs import compared

HOSTILE = "<script>alert('x')</script> & \"co\""


class Table(HTMLParser):
    """Collects the cells of a table by row; fails on any tag that a table does not need."""

    def __init__(self, text: str):
        super().__init__()
        self.rows: list[list[str]] = []
        self.title = ""
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("div", "p", "table", "thead", "tr", "th", "td"), tag
        assert all(name == "style" and value in ("text-align: left", "color: inherit") for name, value in attrs)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] == "p":
            self.title += data
        else:
            self.rows[-1][-1] += data

    @property
    def fields(self) -> dict[str, str]:
        """The rows of a table with two columns."""
        return dict(self.rows)


def show(value: Any) -> Table:
    """Return the table that a notebook shows, after checks that hold for all of them."""
    text = repr(value)
    assert not re.search(r"array\(|tensor\(| object at 0x|dtype", text)
    assert len(text) < 2000
    return Table(value._repr_html_())


def demonstrations(**meta: Any) -> Demonstrations:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(600, 3)).astype(np.float32)
    return Demonstrations.from_arrays(obs, np.tanh(obs[:, :2]), episode_ends=[*range(20, 600, 20), 600], meta=meta)


@pytest.fixture(scope="module")
def policy() -> Policy:
    method = BC(training=Training(updates=33), network=Network(width=8, depth=1))
    demos = demonstrations(action_bounds=[[-1, -1], [1, 2]])
    return fit(method, demos, seeds=range(10), device="cpu")


def test_every_text_of_a_table_is_escaped() -> None:
    text = html_table(HOSTILE, [[HOSTILE, HOSTILE]], [HOSTILE, "b"])
    assert "<script" not in text
    table = Table(text)
    assert (table.title, table.rows) == (HOSTILE, [[HOSTILE, "b"], [HOSTILE, HOSTILE]])
    assert Table(html_table("", [[HOSTILE, "1"]])).fields == {HOSTILE: "1"}
    assert "<table" not in html_table("nothing", [], ["a", "b"])


def test_long_rows_of_numbers_are_shortened() -> None:
    assert list_numbers([1.0, 0.25]) == "1, 0.25"
    assert list_numbers([float(k) for k in range(100)]) == "0, 1, 2, …, 98, 99"


def test_demonstrations() -> None:
    demos = demonstrations(task=HOSTILE, source="x" * 500, action_bounds=[[-1, -1], [1, 2]])
    found = show(demonstrations(task=HOSTILE)).fields
    assert found["task"] == HOSTILE
    found = show(demos.take([0, 29])).fields
    assert found["episodes"] == "2"
    assert found["steps"] == "40 (20 per episode)"
    assert found["action bounds"] == "(-1, -1) … (1, 2)"
    assert len(found["source"]) == 60
    assert show(demos).fields["fingerprint"] == demos.fingerprint
    uneven = Demonstrations.from_arrays(np.zeros((5000, 2)), np.zeros((5000, 1)), episode_ends=[4000, 5000])
    assert show(uneven).fields["steps"] == "5,000 (1,000 to 4,000 per episode)"
    images = Demonstrations.from_arrays(np.zeros((4, 12), np.uint8), np.zeros((4, 1)), episode_ends=[4])
    assert show(images).fields["observation"] == "12 bytes"


def test_demonstrations_in_files_are_not_read_to_be_shown() -> None:
    def read(first: int, last: int) -> Any:
        raise AssertionError("the file was read")

    blocks = [Blocks((8, size), np.dtype(np.float32), read) for size in (3, 2)]
    table = show(Streamed("large.hdf5", blocks[0], blocks[1], np.array([3, 8])))
    assert table.title == "Streamed"
    assert table.fields["steps"] == "8 (3 to 5 per episode)"
    assert table.fields["read from"] == "large.hdf5"


def test_findings_and_rankings() -> None:
    demos = demonstrations()
    assert show(find_problems(demos)).title == repr(find_problems(demos)) == "0 findings"
    stuck = Demonstrations.from_arrays(demos.obs, np.zeros((600, 2)), episode_ends=demos.episode_ends)
    findings = find_problems(stuck)
    header, *rows = show(findings).rows
    assert header == ["severity", "where", "what", "advice"]
    assert [row[2] for row in rows] == [finding.what for finding in findings] != []
    assert findings[0].advice in repr(findings)
    ranking = rank_episodes(demos)
    _, *rows = show(ranking).rows
    assert [int(row[0]) for row in rows] == ranking.order[:10].tolist()
    assert f"{ranking.order[0]} (score {ranking.score.max():.2f})" in repr(ranking)


def test_scores() -> None:
    success = np.array([[True, True, False, True], [True, True, True, True]])
    returns = np.array([[1.0, 2.0, 3.0, 4.0], [10.0, 10.0, 10.0, 10.0]])
    scores = Scores(success, np.full((2, 4), 7), returns, HOSTILE, "fixed", "evaluation", {}, 1.0)
    assert "success 87.5 % (" in repr(scores)
    assert "2 members × 4 episodes" in repr(scores)
    table = show(scores)
    assert HOSTILE in table.title
    assert [row[:3] for row in table.rows[:3]] == [
        ["", "success", "return"],
        ["member 0", "75.0 %", "2.5"],
        ["member 1", "100.0 %", "10"],
    ]
    assert table.rows[3][1].startswith("87.5 % (")
    assert table.rows[3][2].startswith("6.25 (")
    unknown = Scores(success, success.astype(np.int64), returns, "env", "fixed", "evaluation", {}, 1.0, False)
    assert "success" not in repr(unknown)
    assert show(unknown).rows[0] == ["", "return", "steps"]


def test_policies(policy: Policy) -> None:
    found = show(policy).fields
    assert found["method"] == "BC"
    assert found["10 members"].startswith("seed 0; seed 1;")
    assert found["10 members"].endswith("seed 7; … 2 more")
    assert found["weights"] == f"{sum(p[0].numel() for p in policy.net.parameters())} numbers per member, on cpu"
    assert found["actions clipped to"] == "(-1, -1) … (1, 2)"
    assert found["trained on"] == f"30 episodes, 600 steps, {policy.data['fingerprint']}"
    assert (found["monitor"], show(policy[0]).fields["1 member"]) == ("none", "seed 0")
    assert "diverged members" not in found


def test_monitors_and_their_scores(policy: Policy) -> None:
    demos = demonstrations()
    monitored = calibrate(policy[0], demos.with_action_noise(0.01), alpha=0.1, rule=Rule("nearest"), training=demos)
    assert repr(monitored.calibrated_monitor) == "Monitor(nearest, calibrated, alpha 0.1)"
    assert show(monitored).fields["monitor"] == "nearest"
    one, many = (monitored.monitor(demos.obs[rows], demos.act[rows]) for rows in (0, slice(0, 500)))
    assert re.fullmatch(r"Score\(both [\d.e-]+; Alarm\(both (True|False)\)\)", repr(one))
    assert re.fullmatch(r"Score\(both of 500 pairs, mean \S+, largest \S+; Alarm\(both \d+ of 500\)\)", repr(many))


def test_normalisers_and_records(policy: Policy) -> None:
    assert repr(policy.normaliser) == "Normaliser(obs 3, act 2, clipped to ±3 standard deviations)"
    record = Record("evaluation", {"type": "bc"}, [], {}, {"task": "maze", "outcomes": [0] * 9999}, "cpu", 1.0)
    assert repr(record) == f"Record(evaluation, bc, maze, cpu, {record.when})"


def test_searches(policy: Policy) -> None:
    candidates = [
        Candidate("bc", {"training.lr": lr, "state_noise": 0.0}, 100 * k, {"error_absolute": error})
        for k, (lr, error) in enumerate([(1e-3, 0.5), (1e-4, 0.25), (1e-5, np.nan)], 1)
    ]
    result = SearchResult(policy[0], candidates, 1, [], 3.0)
    table = show(result)
    assert table.title.startswith("Chosen: BC with")
    assert table.title in f"Chosen: {repr(result).partition('), ')[2]}"
    assert table.rows[0] == ["method", "settings", "updates", "error_absolute", "score", ""]
    assert table.rows[1] == ["BC", "lr 0.0001", "200", "0.250", "0.000", "chosen"]
    assert table.rows[2] == ["BC", "lr 0.001", "100", "0.500", f"{np.log(2):.3f}", ""]
    assert table.rows[3][3:] == ["–", "–", ""]
    nothing = SearchResult(policy[0], [], None, [HOSTILE], 3.0)
    assert show(nothing).rows == [["policy", repr(policy[0])], ["note", HOSTILE]]
    assert HOSTILE in repr(nothing)


def test_comparisons() -> None:
    rng = np.random.default_rng(0)
    outcomes = rng.random((5, 40)) < 0.5
    runs = [compared("runs/a", outcomes, range(5)), compared(HOSTILE, outcomes | (rng.random((5, 40)) < 0.5), range(5))]
    found = compare_runs(runs)
    assert isinstance(found, Comparison)
    table = show(found)
    assert [row[0] for row in table.rows] == ["run", "runs/a", HOSTILE]
    assert table.rows[1][1].startswith(f"{100 * outcomes.mean():.4g} (")
    assert table.rows[2][2].startswith(f"+{found[0].estimate.mean:.4g} (")
    assert table.rows[2][2] in repr(found)
    assert repr(runs[0]).startswith("ComparedRun(runs/a, 5 seeds × 40 starts, mean ")


def test_a_diverged_member_is_named(policy: Policy) -> None:
    assert show(replace(policy, diverged=[3])).fields["diverged members"] == "3"
