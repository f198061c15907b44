import json
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import jaxtyping
import pytest

from conftest import install_package
from diffclone import BC, DBC, DiffusionGuide, Encoder, EnergyGuide, Network, Training, VAEGuide
from diffclone.data.formats import FORMATS
from diffclone.errors import DiffcloneError, DiffcloneWarning, InvalidPlugin, InvalidSettings, NameTaken, UnknownName
from diffclone.experiments import EXPERIMENTS
from diffclone.guides import GUIDES
from diffclone.methods import METHODS
from diffclone.model import Method
from diffclone.nn.energy import Langevin
from diffclone.registry import Registry
from diffclone.settings import check_types, differences, from_dict, to_dict
from diffclone.tasks import TASKS
from own_models import Reconstruction, Robust

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


def test_settings_with_equal_fields_are_equal_and_hash_equally() -> None:
    assert DBC() == DBC()
    assert hash(DBC()) == hash(DBC())
    assert DBC() != DBC(coefficient=2.0)


def test_missing_fields_have_their_defaults() -> None:
    assert from_dict(METHODS, {"type": "bc", "network": {"width": 9}}) == BC(network=Network(width=9))


def test_an_unknown_field_is_reported_with_the_known_ones() -> None:
    with pytest.raises(InvalidSettings, match=r"Network has no widht; it has width, depth"):
        from_dict(METHODS, {"type": "bc", "network": {"widht": 9}})


def test_an_unknown_type_is_reported() -> None:
    with pytest.raises(DiffcloneError, match="nope"):
        from_dict(METHODS, {"type": "nope", "coefficient": 1.0})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": 5}, "network must be an object with the settings of Network; it is 5"),
        ({"network": {"width": "wide"}}, "network.width must be a whole number; it is 'wide'"),
        ({"network": {"width": 9.5}}, "network.width must be a whole number; it is 9.5"),
        ({"network": {"width": True}}, "network.width must be a whole number; it is True"),
        ({"network": {"width": None}}, "network.width must be a whole number; it is None"),
        ({"network": {"activation": "sine"}}, "network.activation must be 'tanh' or"),
        ({"network": {"image": [2, 64]}}, r"network.image must be a list of 3 or null; it is \[2, 64\]"),
        ({"network": {"image": "big"}}, "network.image must be a list of 3 or null; it is 'big'"),
        ({"coefficient": "often"}, "coefficient must be a number or 'auto'; it is 'often'"),
        ({"coefficient": [1.0]}, r"coefficient must be a number or 'auto'; it is \[1.0\]"),
        ({"subtract_expert": 1}, "subtract_expert must be true or false; it is 1"),
        ({"training": {"clip": "none"}}, "training.clip must be a number or null; it is 'none'"),
        ({"training": {"updates": -1}}, "training: updates and batch must be at least 1"),
        ({"guide": {"type": "diffusion", "training": {"lr": 0.0}}}, "guide.training: .*above 0"),
        ({"guide": {"steps": 5}}, "guide.type must be the name of a guide; it is None"),
        ({"guide": {"type": 3}}, "guide.type must be the name of a guide; it is 3"),
        ({"guide": {"type": "bc"}}, "unknown guide 'bc'"),
        ({"guide": None}, "guide must be an object with the settings of Guide; it is None"),
        ({"guide": ["diffusion"]}, "guide must be an object with the settings of Guide"),
        ({"encoder": {"features": "few"}}, "encoder.features must be a whole number"),
        ({"encoder": 3}, "encoder must be an object with the settings of Encoder or null; it is 3"),
        ({"colour": 1, "size": 2}, "DBC has no colour, size; it has training"),
        ({"network": {"width": "x" * 1000}}, "it is 'x+…\\.$"),
    ],
)
def test_wrong_values_are_reported_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DiffcloneError, match=message) as raised:
        from_dict(METHODS, {"type": "dbc", **changes})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Training(updates=cast(Any, "a")), "updates must be a whole number; it is 'a'"),
        (lambda: Training(decay=cast(Any, "cosine")), "decay must be 'linear' or 'exponential' or 'constant'; it is "),
        (lambda: Network(width=cast(Any, 2.5)), "width must be a whole number; it is 2.5"),
        (lambda: BC(training=cast(Any, 100)), "training must be an object with the settings of Training; it is 100"),
        (lambda: BC(training=cast(Any, {"updates": 9})), r"training must be Training\(…\); it is {'updates': 9}"),
        (lambda: DBC(coefficient=cast(Any, "much")), "coefficient must be a number or 'auto'; it is 'much'"),
        (lambda: DBC(guide=cast(Any, "vae")), "guide must be an object with the settings of Guide; it is 'vae'"),
        (lambda: DBC(guide=cast(Any, VAEGuide)), "guide must be an object with the settings of Guide; it is <class"),
        (lambda: Robust(weight=cast(Any, "low")), "weight must be a number; it is 'low'"),
    ],
)
def test_settings_of_a_wrong_type_are_one_line(
    make: Callable[[], Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no type checks
    with pytest.raises(InvalidSettings, match=message):
        check_types(make())  # classes of diffclone check themselves, `fit` checks those of users


@pytest.mark.parametrize("cls", [Training, Network, Langevin, Encoder, *METHODS.values(), *GUIDES.values()])
def test_all_numbers_of_settings_are_checked(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    valid: dict[str, Any] = {"network": Network(image=(3, 64, 64))} if cls == Encoder else {}
    for name in (f.name for f in fields(cls) if type(getattr(cls(**valid), f.name)) in (int, float)):
        with pytest.raises(InvalidSettings, match=f"{name} must be a .*number.*; it is 'a'"):
            cls(**valid, **{name: "a"})


def test_classes_that_are_not_registered_are_stored_with_their_module() -> None:
    method = Robust(weight=0.5, guide=Reconstruction(width=7))
    values = json.loads(json.dumps(to_dict(method)))
    assert values["type"] == "own_models:Robust"
    assert values["guide"]["type"] == "own_models:Reconstruction"
    assert from_dict(METHODS, values) == method
    guided = DBC(guide=Reconstruction(width=7))
    assert from_dict(METHODS, to_dict(guided)) == guided


def test_settings_import_no_module_that_they_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "never_imported.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').write('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownName, match="the method Mine of the module never_imported is not loaded"):
        from_dict(METHODS, {"type": "never_imported:Mine"})
    assert not (tmp_path / "mark").exists()
    for name in ("os:system", "own_models:Reconstruction", "own_models:", ":", "own_models:Robust.nothing"):
        with pytest.raises(UnknownName, match="is not loaded"):
            from_dict(METHODS, {"type": name})


def test_a_class_that_was_registered_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    method = Robust(guide=EnergyGuide())
    values = to_dict(method)
    registry = Registry("method", {"robust": Robust}, subclass_of=Method)
    monkeypatch.setattr(Registry, "of_classes", [registry, GUIDES])
    monkeypatch.delitem(sys.modules, "own_models")
    assert from_dict(Method, values) == method
    assert to_dict(method)["type"] == "robust"


@dataclass(frozen=True)
class Smaller:
    size: int = 1

    @staticmethod
    def upgrade_settings(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if (name, value) != ("gone", None)}


def test_a_class_may_upgrade_settings_of_older_files() -> None:
    assert from_dict(Smaller, {"size": 2, "gone": None}) == Smaller(2)
    with pytest.raises(InvalidSettings, match="Smaller has no gone; it has size"):
        from_dict(Smaller, {"gone": 3})


@dataclass(frozen=True)
class Shelf:
    size: int
    books: tuple[str, ...] = ()
    places: Mapping[str, float] = field(default_factory=dict[str, float])
    anything: Any = None
    made: int = field(default=3, init=False)


def test_other_dataclasses_are_checked_too() -> None:
    values = {"size": 2, "books": ["a", "b"], "places": {"x": 1, "y": 0.5}, "anything": [1]}
    assert from_dict(Shelf, values) == Shelf(2, ("a", "b"), {"x": 1, "y": 0.5}, [1])
    for wrong, message in (
        ({}, "Shelf lacks size"),
        ({"size": 2, "books": ["a", 1]}, r"books\[1\] must be a string; it is 1"),
        ({"size": 2, "places": {"x": "far"}}, "places.x must be a number; it is 'far'"),
        ({"size": 2, "places": []}, "places must be an object; it is"),
        ({"size": 2, "made": 4}, "Shelf has no made"),
        (7, "the value must be an object with the settings of Shelf; it is 7"),
    ):
        with pytest.raises(InvalidSettings, match=message):
            from_dict(Shelf, wrong)


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ({"x": 1, "y": {"z": [1]}}, {"x": 1, "y": {"z": [1]}}, []),
        ({"x": 1, "y": {"z": 2}}, {"x": 1, "y": {"z": 3}}, ["y.z: 2 != 3"]),
        ({"x": 1}, {"y": 2}, ["x: 1 != None", "y: None != 2"]),
        ({"x": {"y": 1}}, {"x": 5}, ["x: {'y': 1} != 5"]),
    ],
)
def test_differences_report_the_path_and_both_values(a: Any, b: Any, found: list[str]) -> None:
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
def test_training_refuses_invalid_values(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(values))):
        Training(**values)


@pytest.mark.parametrize(
    "values",
    [{"t_low": -1}, {"t_low": 20, "t_high": 20}, {"t_high": 1001}, {"steps": 10, "t_high": 11}, {"draws": 0}],
)
def test_the_diffusion_guide_refuses_invalid_values(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(values))):
        DiffusionGuide(**values)


def test_a_registry_is_a_mapping_that_explains_unknown_names() -> None:
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
    (folder / f"{package}.py").write_text(source)
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    install_package(folder, package, "\n".join(lines) + "\n")


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


def test_every_registry_takes_entries_of_other_packages() -> None:
    registries: list[Registry[Any]] = [METHODS, GUIDES, TASKS, FORMATS, EXPERIMENTS]
    for registry in registries:
        assert registry.group == f"diffclone.{registry.kind}s"
        with pytest.raises(InvalidPlugin, match=f"the {registry.kind} 'wrong' must be"):
            registry.register("wrong")(object())
        assert "wrong" not in registry


def test_in_and_get_work_for_a_missing_name() -> None:
    colours = Registry("colour", {"red": 1})
    assert "blue" not in colours
    assert colours.get("blue") is None


def test_long_values_that_differ_are_shortened() -> None:
    (line,) = differences({"a": "x" * 1000}, {"a": 1})
    assert line == f"a: {'x' * 99}… != 1"
