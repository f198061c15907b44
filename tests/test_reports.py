import numpy as np

from diffclone.reports.demo import DemoPage, demo_page, draw_loss_curves, draw_paths
from diffclone.reports.page import Details, Paragraph, Table, simple_page

PATH = np.array([[1.0, 1.0], [2.0, 1.5], [3.0, 2.0]])
CURVES = {"L_BC": {"BC": ([1, 2, 3], np.array([[3.0, 2.0], [2.0, 1.0], [1.0, 1.0]]))}}


def test_a_page_escapes_all_text() -> None:
    text = simple_page("<b>", [Paragraph("<i>"), Table("a & b", ["<th>"], [["<td>"]]), Details("<s>", "</pre><u>")])
    for given in ("<b>", "<i>", "<th>", "<td><td>", "<s>", "<u>"):
        assert given not in text
    assert "a &amp; b" in text
    assert "&lt;td&gt;" in text


def test_a_figure_has_a_description_for_screen_readers() -> None:
    figure = draw_paths({"BC": [(PATH, True)]}, [(0, 0)], None, 'says "more"')
    text = simple_page("t", [figure])
    assert 'role="img" aria-labelledby="caption-paths"' in text
    assert 'id="caption-paths">says &#34;more&#34; BC: 1 of 1 reach the goal.' in text


def test_paths_count_the_episodes_that_reach_the_goal() -> None:
    svg = draw_paths({"BC": [(PATH, True), (PATH, False)], "DBC": [(PATH, True)]}, [(0, 0)], PATH, "").svg
    assert svg.startswith("<svg")
    assert "BC: 1 of 2 reach the goal" in svg
    assert "DBC: 1 of 1 reach the goal" in svg
    assert "sampled from the guide" in svg


def test_the_same_numbers_give_the_same_figure() -> None:
    assert draw_loss_curves(CURVES, "c").svg == draw_loss_curves(CURVES, "c").svg


def test_the_demo_page_loads_nothing_from_the_network() -> None:
    shown = DemoPage("c", ["method"], [["BC"]], {"BC": [(PATH, True)]}, [(0, 0)], PATH, CURVES, [])
    text = demo_page(shown)
    assert text.count("<svg") == 2
    for forbidden in ("<script", 'src="', "@import", "url(http"):
        assert forbidden not in text
