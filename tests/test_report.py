import dataclasses
import importlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from diffclone.cli.report import MAX_VIDEO_BYTES, read_videos, write_all
from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.experiments import EXPERIMENTS
from diffclone.experiments.compare import derive_cell
from diffclone.experiments.results import ResultTable
from diffclone.experiments.specification import DerivedCell
from diffclone.records import Record
from diffclone.reports.curves import choose_series, lines_of, number_in
from diffclone.reports.report import build_report, draw_figures, report_page
from diffclone.reports.summary import describe_levels, list_absent, list_contradictions
from diffclone.reports.text_tables import to_latex, to_markdown
from diffclone.reports.theme import DARK, LIGHT, TEXT_COLOURS
from diffclone.reports.videos import Video
from example_results import all_tables, cell, grid, make_table, record

VOID = {"meta", "link", "br", "img", "rect", "path", "use", "input"}
HOSTILE = "<script>alert('x')</script> & \"quoted\" | \\input{secret} _%$#^~"


class Seen(HTMLParser):
    """What a page is made of."""

    def __init__(self, page: str):
        super().__init__()
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.parents: list[tuple[str, list[str]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        self.parents.append((tag, list(self.open)))
        if given.get("id") is not None:
            self.ids.append(str(given["id"]))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def page_of(*sheets: ResultTable, videos: tuple[Video, ...] = ()) -> str:
    """Without the files beside it, which take longer."""
    return report_page(sheets, {sheet.name: draw_figures(sheet) for sheet in sheets}, videos)


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return build_report(all_tables(), videos=[Video("maze", "a ball", "video/mp4", b"film")])


@pytest.fixture(scope="module")
def whole(files: dict[str, bytes]) -> str:
    return files["index.html"].decode()


@pytest.fixture(scope="module")
def seen(whole: str) -> Seen:
    return Seen(whole)


def test_every_experiment_has_its_section_and_figures(seen: Seen, files: dict[str, bytes]) -> None:
    for made in all_tables():
        assert made.name in seen.ids
        assert f"caption-{made.name}" in seen.ids
        assert files[f"figures/{made.name}.pdf"].startswith(b"%PDF")
        assert b"<svg" in files[f"figures/{made.name}.svg"]
        assert (f"tables/{made.name}.tex" in files) == bool(made.cells)


def test_the_main_table_comes_first_and_the_others_keep_their_order() -> None:
    document = page_of(make_table("pixels"), make_table("guides"), make_table("main-table"))
    found = re.findall(r'<section id="([\w-]+)"', document)
    assert found[:4] == ["numbers", "main-table", "pixels", "guides"]


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("manifold", ["(a) Sampled actions", "(b) Trajectories"]),
        ("noise-injection", ["(a) Expert's actions", "(b) With noise", "(c) Generated actions", "(d) Trajectories"]),
        ("loss-curves", ["(a) L_BC", "(b) L_DM"]),
        ("gradient-field", ["(a) Maze layout", "(b) Learned gradient field"]),
    ],
)
def test_panels_are_arranged_as_printed(name: str, titles: list[str]) -> None:
    made = next(sheet for sheet in all_tables() if sheet.name == name)
    found = [axes.get_title(loc="left") for axes in draw_figures(made)[0].figure.axes]
    assert found == titles


def test_noise_injection_has_its_curves() -> None:
    made = next(sheet for sheet in all_tables() if sheet.name == "noise-injection")
    by_noise, by_step = draw_figures(made)[1:]
    assert "0.0250 at noise 0 and 0.1250 at 0.1" in by_noise.description
    assert "Not comparable with the paper's" in by_noise.caption
    assert by_step.description == "The error grows from 0.002 at t = 100 to 0.3 at t = 1000."


def test_curves_lie_where_their_columns_say_and_leave_differences_out() -> None:
    made = next(sheet for sheet in all_tables() if sheet.name == "generalization")
    lines = lines_of(made)
    assert [line.label for line in lines] == ["BC", "Implicit BC", "Diffusion Policy", "DBC"]
    assert [x for x, _ in lines[0].points] == [1, 1.25, 1.5, 1.75, 2]
    ours, paper = draw_figures(made)[0].figure.axes
    assert [axes.get_title(loc="left") for axes in (ours, paper)] == ["Ours", "The paper"]
    assert [len(axes.get_lines()) for axes in (ours, paper)] == [4, 4]
    assert ours.get_ylim() == paper.get_ylim()
    assert {line.get_linestyle() for line in paper.get_lines()} == {"--"}


def test_a_table_of_rows_with_numbers_is_a_curve_too() -> None:
    made = make_table("coefficient", grid(("λ = 0", "λ = 0.5", "λ = 10"), ("FetchPick",)))
    assert [x for x, _ in lines_of(made)[0].points] == [0, 0.5, 10]
    (axes,) = draw_figures(made)[0].figure.axes
    assert [line.get_linestyle() for line in axes.get_lines()] == ["-", "--"]


def test_lines_of_a_figure_differ_and_methods_look_the_same_in_all() -> None:
    names = ["BC", "BC, untuned", "BC-GMM", "DBC (ours)", "DBC (paper)", "MIP", "something", "another"]
    found = choose_series(names)
    assert found["BC"] == found["BC, untuned"] == choose_series(["DBC", "BC"])["BC"]
    assert len({found[name] for name in names}) == len(names) - 1


@pytest.mark.parametrize(
    ("name", "place"),
    [("25 %", 25.0), ("λ = 0.5", 0.5), ("noise 1e-3", 1e-3), ("BC", None), ("drop from 1 to 2", None)],
)
def test_places_are_read_from_names(name: str, place: float | None) -> None:
    assert number_in(name) == place


def test_what_a_figure_says_has_its_numbers() -> None:
    by_name = {sheet.name: draw_figures(sheet)[0].description for sheet in all_tables()}
    assert "Maze: highest BC, 90.0 (the paper 91.0 ± 2.5); lowest DBC, 87.0" in by_name["main-table"]
    assert "196 of 196 arrows" in by_name["gradient-field"]
    assert "DBC: 90.0 at λ 0, 78.0 at 10." in by_name["coefficient"]
    assert "DBC 2 of 3" in by_name["manifold"]
    assert "expert" not in by_name["manifold"].split("Paths")[1].split(":")[1]
    assert all(by_name.values())


def test_a_cell_has_the_number_its_interval_what_it_rests_on_the_papers_and_the_difference() -> None:
    document = page_of(make_table("main-table", [cell("BC", "Maze", 92.34, 95.44, note="elsewhere it is 96")]))
    for shown in ("92.3", "83.1 … 101.6", "5 × 100", "paper 95.4 ± 2.5", "−3.1 to the paper", "elsewhere it is 96"):
        assert shown in document


def test_the_same_sheets_give_the_same_bytes(files: dict[str, bytes]) -> None:
    some = [
        sheet for sheet in all_tables() if sheet.name in ("main-table", "coefficient", "manifold", "gradient-field")
    ]
    again = build_report(some)
    assert again["index.html"].decode() == page_of(*some)
    assert {name: files[name] for name in again if name != "index.html"} == {
        name: content for name, content in again.items() if name != "index.html"
    }


def test_every_link_leads_to_a_place_and_no_two_places_share_a_name(seen: Seen) -> None:
    assert len(seen.ids) == len(set(seen.ids))
    links = [given[name] for _, given in seen.tags for name in ("href", "xlink:href") if name in given]
    inner = {str(link)[1:] for link in links if str(link).startswith("#")}
    assert inner <= set(seen.ids)
    assert any(link.startswith("record-") for link in inner)
    for name in ("aria-labelledby", "aria-describedby"):
        assert {given[name] for _, given in seen.tags if name in given} <= set(seen.ids)


def test_every_number_of_ours_leads_to_its_record(whole: str) -> None:
    start = '<td class="number"><span class="mean">'
    cells = re.findall(f"{start}(.*?)</span></td>|{start}(<a .*?</a>)", whole)
    assert len(cells) > 100
    assert all('href="#record-' in linked or not re.search(r"\d", plain) for plain, linked in cells)


def test_a_record_says_everything_that_can_move_a_number() -> None:
    document = page_of(make_table("pixels", [cell("BC", "CarRacing", 700.0, unit="return")]))
    for shown in ("b591c848e3e57aea", "0, 1, 2, 3, 4", "torch: 2.6.0", "a device", "12.5 s", "2026-01-02T03:04:05"):
        assert shown in document
    assert "&#34;coefficient&#34;: 30.0" in document


def test_equal_records_are_listed_once() -> None:
    assert page_of(make_table("pixels", [cell("BC", "a", 1.0), cell("DBC", "a", 2.0)])).count('<li id="record-') == 1
    different = [cell("BC", "a", 1.0), cell("DBC", "a", 2.0, number=1)]
    assert page_of(make_table("pixels", different)).count('<li id="record-') == 2


def test_nothing_is_asked_of_the_network(whole: str, seen: Seen) -> None:
    for tag, given in seen.tags:
        assert tag not in ("iframe", "object", "embed")
        for name in ("src", "href", "xlink:href", "poster", "srcset"):
            assert str(given.get(name, "#")).startswith(("#", "data:"))
    assert "@import" not in whole
    assert not re.search(r"url\((?!#)", whole)


def test_headings_are_in_order_under_a_single_first_one(seen: Seen) -> None:
    assert seen.headings.count(1) == 1
    assert seen.headings[0] == 1
    assert all(after - before <= 1 for before, after in zip(seen.headings, seen.headings[1:], strict=False))


def test_the_page_is_sane_for_keyboards_and_screen_readers(whole: str, seen: Seen) -> None:
    tags = [tag for tag, _ in seen.tags]
    assert dict(seen.tags)["html"] == {"lang": "en"}
    assert tags.count("main") == tags.count("h1") == tags.count("title") == 1
    assert {"header", "nav", "footer"} <= set(tags)
    assert whole.index('class="skip" href="#main"') < whole.index("<header>")
    assert tags.count("caption") == tags.count("table") > 0
    assert all(given.get("scope") in ("col", "row") for tag, given in seen.tags if tag == "th")
    for tag, parents in seen.parents:
        if tag == "table":
            assert parents[-1] == "div"
    regions = [given for _, given in seen.tags if given.get("role") == "region"]
    assert all(given.get("tabindex") == "0" and given.get("aria-label") for given in regions)
    svgs = [given for tag, given in seen.tags if tag == "svg"]
    assert all(given["role"] == "img" and given["aria-labelledby"] in seen.ids for given in svgs)
    assert "focus-visible" in whole


def luminance(colour: str) -> float:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "panel"])
@pytest.mark.parametrize("name", TEXT_COLOURS)
def test_what_is_read_stands_out(scheme: dict[str, str], ground: str, name: str) -> None:
    dark, light = sorted((luminance(scheme[name]), luminance(scheme[ground])))
    assert (light + 0.05) / (dark + 0.05) >= 4.5
    assert f"--{name}: {scheme[name]};" in page_of()


def test_both_schemes_name_the_same_colours_and_figures_use_names_only(whole: str) -> None:
    assert LIGHT.keys() == DARK.keys()
    assert len(set(LIGHT.values())) == len(LIGHT)
    drawn = "".join(re.findall(r"<svg.*?</svg>", whole, flags=re.DOTALL))
    assert set(re.findall(r"(?:fill|stroke): (#\w+)", drawn)) == set()
    assert "stroke: var(--ink)" in drawn


def test_what_was_not_run_is_said_with_its_reason() -> None:
    cells = [
        cell("BC", "Walker", None, 6954.4, unit="return", status="not run", reason="no time"),
        cell("DBC", "Walker", None, 7034.6, unit="return", status="failed", reason="NaN"),
    ]
    made = make_table("main-table", cells)
    assert list_absent(made) == {"not run: no time": ["BC, Walker"], "failed: NaN": ["DBC, Walker"]}
    document = page_of(made)
    listed = document.split('<section id="not-run"')[1]
    assert "BC, Walker (not run: no time)" in listed
    assert "DBC, Walker (failed: NaN)" in listed
    assert "✗ failed" in document
    assert draw_figures(made) == []


def test_a_long_list_of_what_was_not_run_is_shortened() -> None:
    cells = [cell("BC", str(k), None, 1.0, status="not run") for k in range(12)]
    (listed,) = list_absent(make_table("main-table", cells)).values()
    assert listed[-2:] == ["BC, 7", "4 more"]
    assert list_absent(make_table("loss-curves", (), {"curves": (record("curves"),)})) == {}


def test_a_figure_without_records_is_among_what_was_not_run() -> None:
    assert list_absent(make_table("loss-curves", (), {"curves": ()})) == {"not run": ["curves, of the figure"]}
    assert list_absent(make_table("inference", [cell("BC", "ms", 1.0)], {"inference": ()})) == {}


def test_without_any_record_there_is_still_a_page() -> None:
    empty = [dataclasses.replace(made, cells=(), rows=(), columns=(), measured={}) for made in all_tables()]
    document = page_of(*empty)
    Seen(document)
    assert document.count("No figure") == 15
    assert "There are no numbers yet." in document
    assert "There are no Records yet." in document
    assert document.split('<section id="not-run"')[1].count("</a>: everything</li>") == 15


@pytest.mark.parametrize("name", ["manifold", "noise-injection"])
def test_a_panel_without_its_records_says_so(name: str) -> None:
    made = next(sheet for sheet in all_tables() if sheet.name == name)
    without = dataclasses.replace(made, measured={"samples": made.measured["samples"]})
    assert "not run" in draw_figures(without)[0].svg
    assert "not run" not in draw_figures(made)[0].svg


def test_quick_runs_are_marked_and_never_compared() -> None:
    some = ("main-table", "coefficient", "noise-injection", "inference")
    document = page_of(*(sheet for sheet in all_tables(quick=True) if sheet.name in some))
    assert document.count('class="banner"') == 5
    assert "all experiments" in document
    assert "quick, not compared" in document
    for word in ("to the paper", "paper 9", "dashed", "the paper 9"):
        assert word not in document.split("<body>")[1]
    assert describe_levels(all_tables(quick=True)).startswith("No level")
    made = all_tables(quick=True)[0]
    assert "levels" not in to_markdown(made)
    assert "91.0" not in to_markdown(made) + to_latex(made)


def test_what_is_missing_of_quick_runs_is_not_called_quick() -> None:
    cells = [
        cell("BC", "Maze", 90.0, 92.1, reason="a short run"),
        cell("DBC", "Maze", None, 95.4, status="not run"),
    ]
    document = page_of(make_table("main-table", cells, quick=True))
    first, second = re.findall(r'<tr><th scope="row">(.*?)</tr>', document, flags=re.DOTALL)
    assert "quick, not compared" in first
    assert "not run" in second
    assert "quick" not in second
    assert "95.4" not in second


def test_a_quick_experiment_among_others_is_named() -> None:
    document = page_of(make_table("main-table", [cell("BC", "Maze", 92.0, 92.1)]), make_table("pixels", quick=True))
    assert "<strong>Quick runs:</strong> About pixels." in document
    assert "can be compared with the paper&#39;s: 1." in document


@pytest.mark.filterwarnings("ignore:Tight layout:UserWarning")  # such names leave no room for a figure
def test_hostile_text_stays_text() -> None:
    made = make_table(
        "pixels",
        [
            dataclasses.replace(cell(HOSTILE, HOSTILE, 1.0, 1.0, note=HOSTILE, reason=HOSTILE), unit=HOSTILE),
            cell("b", "c", None, status="failed", reason=HOSTILE),
        ],
        {HOSTILE: (record(HOSTILE, label=HOSTILE, task=HOSTILE),)},
        title=HOSTILE,
        about=HOSTILE,
        source=HOSTILE,
        settings={HOSTILE: HOSTILE},
    )
    document = page_of(made, videos=(Video(HOSTILE, HOSTILE, "image/png", b"x"),))
    seen = Seen(document)
    assert [tag for tag, _ in seen.tags].count("script") == 1
    assert "<script>alert" not in document
    assert len(seen.ids) == len(set(seen.ids))
    table = to_markdown(made)
    assert "<script>" not in table.replace("\\<script\\>", "")
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()} == {8}


def test_latex_is_escaped_and_has_as_many_columns_as_it_says() -> None:
    made = make_table("pixels", [cell("50 % & more_less #1 {x} \\y", "λ^2 ~ $", 1.0, 2.0), cell("b", "c", None)])
    table = to_latex(made)
    assert r"50 \% \& more\_less \#1 \{x\} \textbackslash{}y" in table
    assert r"$\lambda$\textasciicircum{}2 \textasciitilde{} \$" in table
    assert table.startswith("\\begin{tabular}{llll}\n\\toprule")
    rows = [line for line in table.splitlines() if line.endswith("\\\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {3}
    table.encode("ascii")


def test_markdown_has_a_line_a_cell() -> None:
    lines = to_markdown(
        make_table("pixels", [cell("BC", "CarRacing", 92.0, 92.1), cell("DBC", "CarRacing", None)])
    ).splitlines()
    assert lines[0].count("|") == lines[2].count("|") == lines[3].count("|") == 8
    assert lines[2].endswith("| 92.0 (82.8 … 101.2) | 5 × 100 | 92.1 ± 2.5 | −0.1 to the paper |")


def test_what_the_paper_says_against_itself_is_listed_with_its_places() -> None:
    cells = [
        cell("BC", "1", 90.0, 92.4),
        cell("BC", "2", 60.0, 67.4),
        cell("DBC", "1", 90.0, 99.5, note="elsewhere 99.4"),
        cell("DBC", "2", 60.0, 73.5, note="elsewhere 99.4"),
    ]
    entry = DerivedCell("BC", "drop", "drop", ("BC", "1"), ("BC", "2"))
    drop = derive_cell(entry, {(cell.row, cell.column): cell for cell in cells})
    assert drop.printed is not None
    assert drop.printed.note
    made = make_table("generalization", [*cells, drop], title="Far")
    assert list_contradictions([made]) == {"elsewhere 99.4": ["Far, DBC, 1", "Far, DBC, 2"]}


@pytest.mark.parametrize(
    ("media", "tag", "folded"), [("video/mp4", "video", False), ("image/gif", "img", True), ("image/png", "img", False)]
)
def test_rollouts_are_in_the_page_with_words_beside_them(media: str, tag: str, *, folded: bool) -> None:
    seen = Seen(page_of(videos=(Video("maze", "a ball rolls", media, b"film"),)))
    given = next(given for found, given in seen.tags if found == tag)
    assert str(given["src"]).startswith(f"data:{media};base64,")
    assert given.get("aria-label", given.get("alt")) == "maze: a ball rolls"
    assert "autoplay" not in given
    parents = next(parents for found, parents in seen.parents if found == tag)
    assert ("details" in parents) == folded


def test_rollouts_are_read_by_the_names_of_tasks(tmp_path: Path) -> None:
    for name in ("walker.gif", "maze.mp4", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert [(film.task, film.media_type) for film in read_videos(tmp_path)] == [
        ("maze", "video/mp4"),
        ("walker", "image/gif"),
    ]


def nothing(folder: Path) -> None:
    assert folder.is_dir()


def bad_name(folder: Path) -> None:
    (folder / "mazze.mp4").write_bytes(b"x")


def two_of_one(folder: Path) -> None:
    (folder / "maze.mp4").write_bytes(b"x")
    (folder / "maze.gif").write_bytes(b"x")


def too_large(folder: Path) -> None:
    (folder / "maze.mp4").write_bytes(b"x" * (MAX_VIDEO_BYTES + 1))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (bad_name, "not named after a task"),
        (two_of_one, "Remove one"),
        (too_large, "up to 3 MB"),
        (nothing, "no file named after a task"),
    ],
)
def test_rollouts_that_cannot_be_shown_are_refused(spoil: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    spoil(tmp_path)
    with pytest.raises(InvalidSettings, match=says):
        read_videos(tmp_path)


def test_a_folder_of_rollouts_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="no such folder"):
        read_videos(tmp_path / "absent")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_all(tmp_path / "a" / "report", {"index.html": b"page", "tables/x.md": b"table"})
    assert (tmp_path / "a" / "report" / "tables" / "x.md").read_bytes() == b"table"
    with pytest.raises(OSError):
        write_all(tmp_path / "b", {"index.html": b"page", "x" * 500: b""})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_command_shows_what_was_run_and_overwrites_nothing(diffclone: Command, tmp_path: Path) -> None:
    record("evaluation", task="maze").append_to(tmp_path / "records.jsonl")
    out = tmp_path / "report"
    said = diffclone("report", "--records", tmp_path / "records.jsonl", "--out", out)
    assert said.code == 0, said.err
    document = (out / "index.html").read_text(encoding="utf-8")
    Seen(document)
    sections = re.findall(r'<section id="([\w-]+)"', document)
    assert sections[:3] == ["claims", "numbers", "main-table"]
    assert {*EXPERIMENTS} <= {*sections}
    assert (out / "tables" / "claims.tex").exists()
    assert "not run" in document
    assert (out / "tables" / "main-table.tex").exists()
    again = diffclone("report", "--records", tmp_path / "records.jsonl", "--out", out)
    assert again.code == 2
    assert "exists already" in again.err
    assert (out / "index.html").read_text(encoding="utf-8") == document


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--records", "absent.jsonl"), "no such file: absent.jsonl"),
        (("--data", "maze"), "TASK=FILE"),
        (("--videos", "absent"), "no such folder: absent"),
    ],
)
def test_mistakes_are_answered_with_a_line(
    diffclone: Command, flags: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record("evaluation").append_to(Path("reproduction/records.jsonl"))
    answer = diffclone("report", *flags)
    assert answer.code == 2
    assert says in answer.err
    assert not Path("report").exists()


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = importlib.import_module("docs.reproduction_tables")
    cells = [
        cell("BC", "Maze", 92.0, 92.1),
        cell("DBC", "Maze", 99.0, 95.4, note="a_note"),
        cell("DBC", "Walker", None, 7034.6, status="not run"),
    ]
    made = (make_table("main-table", cells, title="Main"), *all_tables()[1:])
    monkeypatch.setattr(module, "load_results", lambda: made)
    return module


def test_the_docs_lists_come_from_the_sheets(tables: Any) -> None:
    assert "- Main: DBC, Walker (not run)" in tables.BLOCKS["reproduction-missing"]()
    assert r"- Main, DBC, Maze: a\_note" in tables.BLOCKS["reproduction-contradictions"]()
    assert tables.BLOCKS["reproduction-main-table"]().startswith("| ")
    assert "4 Records" not in tables.BLOCKS["reproduction-loss-curves"]()
    assert "3 Records" in tables.BLOCKS["reproduction-loss-curves"]()
    for block in tables.BLOCKS.values():
        assert "<!--" not in block()


def test_only_what_is_shown_is_taken_over(tables: Any) -> None:
    committed = Record.read_all(tables.RECORDS / "reproduction.jsonl.gz")
    assert tables.select_used([*committed, record("evaluation")]) == committed
