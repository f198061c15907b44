import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from diffclone import BC, DBC, DiffusionGuide, Network, Training
from diffclone.errors import DiffcloneError, DiffcloneWarning, InvalidPlugin, InvalidSettings, NameTaken, UnknownName
from diffclone.methods import METHODS
from diffclone.registry import Registry
from diffclone.settings import differences, from_dict, to_dict

GUIDED = DBC(
    training=Training(updates=7, clip=None, ema=0.9),
    network=Network(width=3, activation="relu"),
    coefficient=2.5,
    guide=DiffusionGuide(training=Training(lr=3e-4), steps=50, t_high=20, t_sampling="stratified"),
    gate="none",
)


def test_nested_settings_survive_json() -> None:
    values = json.loads(json.dumps(to_dict(GUIDED)))
    assert values["type"] == "dbc"
    assert values["guide"]["type"] == "diffusion"
    assert from_dict(METHODS, values) == GUIDED


def test_settings_are_values() -> None:
    assert DBC() == DBC()
    assert hash(DBC()) == hash(DBC())
    assert DBC() != DBC(coefficient=2.0)


def test_fields_left_out_have_their_defaults() -> None:
    assert from_dict(METHODS, {"type": "bc", "network": {"width": 9}}) == BC(network=Network(width=9))


def test_an_unknown_field_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidSettings, match=r"Network has no widht; it has width, depth"):
        from_dict(METHODS, {"type": "bc", "network": {"widht": 9}})


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(DiffcloneError, match="nope"):
        from_dict(METHODS, {"type": "nope", "coefficient": 1.0})


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ({"x": 1, "y": {"z": [1]}}, {"x": 1, "y": {"z": [1]}}, []),
        ({"x": 1, "y": {"z": 2}}, {"x": 1, "y": {"z": 3}}, ["y.z: 2 != 3"]),
        ({"x": 1}, {"y": 2}, ["x: 1 != None", "y: None != 2"]),
        ({"x": {"y": 1}}, {"x": 5}, ["x: {'y': 1} != 5"]),
    ],
)
def test_differences_name_the_path_and_both_sides(a: Any, b: Any, found: list[str]) -> None:
    assert differences(a, b) == found


@pytest.mark.parametrize(
    "values",
    [
        {"updates": 0},
        {"batch": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"eps": -1.0},
        {"clip": 0.0},
        {"ema": 1.0},
        {"ema": 0.0},
    ],
)
def test_training_refuses_nonsense(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(values))):
        Training(**values)


@pytest.mark.parametrize(
    "values",
    [{"t_low": -1}, {"t_low": 20, "t_high": 20}, {"t_high": 1001}, {"steps": 10, "t_high": 11}, {"draws": 0}],
)
def test_the_diffusion_guide_refuses_nonsense(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(values))):
        DiffusionGuide(**values)


def test_a_registry_is_a_mapping_that_explains_itself() -> None:
    colours = Registry("colour", {"red": 1, "green": 2})
    assert dict(colours) == {"red": 1, "green": 2}
    assert "red" in colours
    assert colours.name_of(2) == "green"
    with pytest.raises(UnknownName, match=r"unknown colour 'gren'; did you mean 'green'\? Known: green, red\."):
        colours["gren"]
    with pytest.raises(UnknownName, match=r"unknown colour 'xyz'\. Known: green, red\."):
        colours["xyz"]
    with pytest.raises(UnknownName, match="3 is not a registered colour"):
        colours.name_of(3)


def test_registering_adds_an_entry_and_refuses_a_name_that_is_taken() -> None:
    colours: Registry[type] = Registry("colour", {"red": int}, subclass_of=float)

    @colours.register("blue")
    class Blue(float):
        pass

    assert colours["blue"] is Blue
    assert list(colours) == ["red", "blue"]
    colours.register("blue")(Blue)
    with pytest.raises(NameTaken, match=r"the colour 'blue' exists already: <class .*Blue'>\. Choose another name for"):
        colours.register("blue")(float)
    assert colours["blue"] is Blue
    for wrong in (3.0, int):
        with pytest.raises(InvalidPlugin, match="the colour 'green' must be a subclass of float; it is"):
            colours.register("green")(wrong)
    with pytest.raises(InvalidPlugin, match="must be of the type str; it is 3"):
        Registry("word", {"a": "b"}, instance_of=str).register("c")(3)
    with pytest.raises(InvalidPlugin, match="without a colon"):
        colours.register("a:b")(float)


def define_again() -> type:
    class Again(float):
        pass

    return Again


def test_a_class_that_is_defined_again_replaces_itself() -> None:
    colours: Registry[type] = Registry("colour", {})
    first, second = (colours.register("again")(define_again()) for _ in range(2))
    assert first is not second
    assert colours["again"] is second


def install(folder: Path, package: str, group: str, entries: dict[str, str], source: str) -> None:
    """Write a package with entry points as pip would install it."""
    (folder / f"{package}.py").write_text(source)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def test_entry_points_are_loaded_when_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = "diffclone.test_colours"
    install(tmp_path, "colours_good", group, {"green": "colours_good:G", "blue": "colours_good:B"}, "G, B = 2, 3")
    install(tmp_path, "colours_bad", group, {"black": "colours_bad:X"}, "raise RuntimeError('no light\\nat all')")
    install(tmp_path, "colours_taken", group, {"red": "colours_taken:R"}, "R = 9")
    for package in ("colours_first", "colours_second"):
        install(tmp_path, package, group, {"grey": f"{package}:G"}, "G = 7")
    install(tmp_path, "colours_words", group, {"word": "colours_words:W"}, "W = 'no number'")
    monkeypatch.syspath_prepend(tmp_path)
    colours = Registry("colour", {"red": 1}, group=group, instance_of=int)
    assert colours["red"] == 1
    assert "colours_good" not in sys.modules
    assert colours["green"] == 2
    assert "colours_bad" not in sys.modules

    message = (
        r"the colour 'black' of the package colours_bad cannot be loaded \(RuntimeError: no light\)\. "
        r"Update or uninstall colours_bad\."
    )
    with pytest.raises(InvalidPlugin, match=message):
        colours["black"]
    with pytest.raises(InvalidPlugin, match="colours_first and colours_second both add the colour 'grey'"):
        colours["grey"]
    with pytest.warns(DiffcloneWarning) as caught:
        assert dict(colours) == {"red": 1, "green": 2, "blue": 3}
    said = sorted(str(warning.message) for warning in caught)
    assert len(said) == 4
    assert "colours_first and colours_second" in said[0]
    assert "of the package colours_bad" in said[1]
    assert "of the package colours_taken cannot be loaded (the colour 'red' exists already: 1." in said[2]
    assert "of the package colours_words cannot be loaded (the colour 'word' must be of the type int" in said[3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(colours) == 3
        with pytest.raises(UnknownName, match=r"unknown colour 'gren'; did you mean 'green'\? Known: blue, green, red"):
            colours["gren"]


def test_a_missing_name_can_be_asked_for() -> None:
    colours = Registry("colour", {"red": 1})
    assert "blue" not in colours
    assert colours.get("blue") is None
