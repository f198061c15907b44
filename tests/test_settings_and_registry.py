import json
from typing import Any

import pytest

from diffclone import BC, DBC, DiffusionGuide, Network, Training
from diffclone.errors import DiffcloneError, InvalidSettings, UnknownName
from diffclone.guides import GUIDES
from diffclone.methods import METHODS
from diffclone.model import Method
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
    values = json.loads(json.dumps(to_dict(GUIDED, METHODS, GUIDES)))
    assert values["type"] == "dbc"
    assert values["guide"]["type"] == "diffusion"
    assert from_dict(Method, values, METHODS, GUIDES) == GUIDED


def test_settings_are_values() -> None:
    assert DBC() == DBC()
    assert hash(DBC()) == hash(DBC())
    assert DBC() != DBC(coefficient=2.0)


def test_fields_left_out_have_their_defaults() -> None:
    assert from_dict(Method, {"type": "bc", "network": {"width": 9}}, METHODS) == BC(network=Network(width=9))


def test_an_unknown_field_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidSettings, match=r"Network has no widht; it has width, depth"):
        from_dict(Method, {"type": "bc", "network": {"widht": 9}}, METHODS)


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(DiffcloneError, match="nope"):
        from_dict(Method, {"type": "nope", "coefficient": 1.0}, METHODS, GUIDES)


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


def test_a_missing_name_can_be_asked_for() -> None:
    colours = Registry("colour", {"red": 1})
    assert "blue" not in colours
    assert colours.get("blue") is None
