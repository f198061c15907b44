import numpy as np

from diffclone.reports.figures import loss_curves, trajectories
from diffclone.reports.page import Picture, Source, Table, Text, page

PATH = np.array([[1.0, 1.0], [2.0, 1.5], [3.0, 2.0]])


def test_a_page_escapes_what_it_is_given() -> None:
    text = page("<b>", [Text("<i>"), Table("a & b", ["<th>"], [["<td>"]]), Source("<s>", "</pre>")])
    for given in ("<b>", "<i>", "<th>", "<td></td>", "<s>"):
        assert given not in text.replace("<td>&lt;td&gt;</td>", "")
    assert "a &amp; b" in text


def test_a_picture_is_described_for_those_who_do_not_see_it() -> None:
    text = Picture("<svg></svg>", 'says "more"').to_html()
    assert 'role="img" aria-label="says &quot;more&quot;"' in text
    assert "<figcaption>" in text


def test_trajectories_count_what_they_show() -> None:
    svg = trajectories({"BC": [(PATH, True), (PATH, False)], "DBC": [(PATH, True)]}, [(0, 0)], PATH)
    assert svg.startswith("<svg")
    assert "BC: 1 of 2 reach the goal" in svg
    assert "DBC: 1 of 1 reach the goal" in svg
    assert "sampled from the guide" in svg


def test_the_same_numbers_give_the_same_figure() -> None:
    curves = {"L_BC": {"BC": ([1, 2, 3], np.array([[3.0, 2.0], [2.0, 1.0], [1.0, 1.0]]))}}
    assert loss_curves(curves) == loss_curves(curves)


def test_a_page_asks_for_nothing_from_outside() -> None:
    text = page("t", [Picture(trajectories({"BC": [(PATH, True)]}, [], None), "c")])
    assert "<script" not in text
    assert 'src="' not in text
    assert "@import" not in text
