from diffclone.reports.demo import DemoPage, demo_page, draw_success
from diffclone.reports.page import Details, Page, Paragraph, Part, Section, Table, render_page
from diffclone.reports.videos import MEDIA_TYPES, Video

POINTS = [
    {"method": method, "updates": updates, "success": success, "low": success - 0.1, "high": 1.0, "chosen": chosen}
    for method, updates, success, chosen in (
        ("BC", 500, 0.5, False),
        ("BC", 1000, 0.25, False),
        ("DBC", 500, 0.75, True),
        ("DBC", 1000, 0.7, False),
    )
]


def simple_page(title: str, parts: list[Part]) -> str:
    return render_page(Page(title, "test", [], [], [Section("parts", "Parts", parts)], "diffclone test"))


def test_a_page_escapes_all_text() -> None:
    text = simple_page("<b>", [Paragraph("<i>"), Table("a & b", ["<th>"], [["<td>"]]), Details("<s>", "</pre><u>")])
    for given in ("<b>", "<i>", "<th>", "<td>", "<s>", "<u>"):
        assert given not in text
    assert "a &amp; b" in text
    assert "&lt;td&gt;" in text


def test_a_figure_has_a_description_for_screen_readers() -> None:
    text = simple_page("t", [draw_success(POINTS, 0.8)])
    assert 'role="img" aria-labelledby="caption-success"' in text
    assert "BC: 50 at 500, 25 at 1,000. DBC: 75 at 500, 70 at 1,000. The final policy: 80." in text


def test_success_along_training_marks_the_choice() -> None:
    marked, plain = (draw_success([{**p, "chosen": p["chosen"] and k} for p in POINTS], 0.8).svg for k in (True, False))
    assert "chosen without the environment" in marked
    assert "chosen without the environment" not in plain


def test_the_same_numbers_give_the_same_figure() -> None:
    assert draw_success(POINTS, 0.8).svg == draw_success(POINTS, 0.8).svg


def test_the_demo_page_loads_nothing_from_the_network() -> None:
    video = Video("FetchPick", "BC", MEDIA_TYPES["gif"], b"GIF89a")
    text = demo_page(DemoPage("c", ["method"], [["BC"]], POINTS, 0.8, [video], []))
    assert text.count("<svg") == 2  # for wide and for narrow screens
    assert "data:image/gif;base64," in text
    for forbidden in ("<script src", 'src="http', "@import", "url(http"):
        assert forbidden not in text
