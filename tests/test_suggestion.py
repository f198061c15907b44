import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, DiffusionPolicy, Method, Network, Training, fit
from diffclone.cli.train import TrainOptions, choose_method, run_train
from diffclone.errors import InvalidSettings
from diffclone.guides import GANGuide
from diffclone.methods import METHODS, FlowMatching
from diffclone.training import Progress
from diffclone.training.overfitting import Overfitting
from diffclone.training.suggestion import shorten_parts, suggest, suggested_updates, suggested_width
from own_models import Robust


def blank(steps: int, obs: int, act: int, **meta: Any) -> Demonstrations:
    rows = np.zeros((steps, obs), dtype=np.uint8 if meta.pop("images", False) else np.float32)
    return Demonstrations.from_arrays(rows, np.zeros((steps, act)), episode_ends=[steps], meta=meta)


def test_updates_depend_on_the_data_within_bounds() -> None:
    assert suggested_updates(12_800) == 5_000
    assert suggested_updates(10) == 3_000
    assert suggested_updates(10**9) == 30_000


def test_widths_depend_on_the_sizes() -> None:
    assert [suggested_width(size) for size in (8, 16, 17, 64, 65)] == [256, 256, 512, 512, 1024]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gets_a_size_and_a_schedule(name: str) -> None:
    small = suggest(METHODS[name](), blank(12_800, 6, 2))
    large = suggest(METHODS[name](), blank(25_600, 60, 20))
    assert small.training.updates >= 5_000
    assert large.training.updates == 2 * small.training.updates
    assert large != small


def test_guides_have_twice_and_diffusion_policies_ten_times_the_updates() -> None:
    demos = blank(12_800, 6, 2)
    dbc = suggest(DBC(), demos)
    assert (dbc.training.updates, dbc.guide.training.updates) == (5_000, 10_000)
    assert dbc.coefficient == DBC().coefficient
    assert suggest(DiffusionPolicy(), demos).training.updates == 50_000
    assert suggest(FlowMatching(), demos).training.updates == 50_000


def test_images_need_their_sides() -> None:
    with pytest.raises(InvalidSettings, match=r"images of 8192 bytes with unknown sides"):
        suggest(BC(), blank(200, 8192, 3, images=True))
    known = blank(200, 8192, 3, images=True, image=[2, 64, 64])
    dbc = suggest(DBC(), known)
    assert dbc.network.image == (2, 64, 64)
    assert dbc.encoder is not None
    assert dbc.encoder.image == (2, 64, 64)


@pytest.mark.parametrize(("height", "width", "pool"), [(84, 84, 7), (96, 64, 8), (44, 40, 4), (37, 41, 1)])
def test_an_encoder_divides_images_of_any_size(height: int, width: int, pool: int) -> None:
    demos = blank(20, 3 * height * width, 2, images=True, image=[3, height, width])
    dropped = Network(dropout=0.1, image=(3, height, width))
    for dbc in (suggest(DBC(), demos), suggest(DBC(network=dropped), demos)):
        assert dbc.encoder is not None
        assert (dbc.encoder.pool, dbc.encoder.network.dropout) == (pool, 0)


def test_values_that_are_set_are_kept_even_if_they_equal_the_default() -> None:
    demos = blank(12_800, 60, 20)
    default = DBC()
    set_by_hand = DBC(
        training=Training(updates=20_000, lr=5e-4, eps=1e-12),
        network=Network(),
        guide=DiffusionGuide(training=Training(updates=40_000, lr=5e-4), width=128),
    )
    assert set_by_hand == default
    assert suggest(set_by_hand, demos) == set_by_hand
    suggested = suggest(replace(default, coefficient=3.0), demos)
    assert isinstance(suggested.guide, DiffusionGuide)
    assert suggested.network.width == suggested.guide.width == 1024
    assert suggested.coefficient == 3.0
    partly = suggest(DBC(guide=DiffusionGuide(width=128)), demos)
    assert partly.guide == DiffusionGuide(width=128, training=suggested.guide.training)
    assert partly.network == suggested.network


def test_fit_and_the_command_line_choose_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Method[Any]] = []

    def stop(method: Method[Any], *others: Any) -> Any:
        chosen.append(method)
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["diffclone.fit"], "fit_with_options", stop)
    demos = blank(12_800, 20, 3)
    for name in METHODS:
        with pytest.raises(KeyboardInterrupt):
            fit(METHODS[name](), demos)
        assert chosen.pop() == choose_method(TrainOptions(out=Path(), method=name), None, demos) != METHODS[name]()
    with pytest.raises(KeyboardInterrupt):
        fit(DBC(), demos, suggest=False)
    assert chosen.pop() == DBC()


def test_parts_are_shortened_in_proportion_unless_their_updates_are_given() -> None:
    planned = suggest(DBC(), blank(12_800, 6, 2))
    shorter = replace(planned, training=replace(planned.training, updates=10))
    found, changed = shorten_parts(shorter, planned, [])
    assert (found.training.updates, found.guide.training.updates, changed) == (10, 20, {"guide": 20})
    assert replace(found, guide=planned.guide) == shorter, "nothing else changes"
    assert shorten_parts(shorter, planned, ["guide"]) == (shorter, {})
    longer = replace(planned, training=replace(planned.training, updates=10**6))
    assert shorten_parts(longer, planned, []) == (longer, {})
    gan = DBC(guide=GANGuide(), training=Training(updates=5))
    assert shorten_parts(gan, planned, []) == (gan, {}), "it is trained alongside the policy"


def test_the_command_line_shortens_the_guide_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trained: list[Any] = []
    said: list[str] = []

    def stop(folder: Path, method: Method[Any], *others: Any, **more: Any) -> None:
        trained.append(method)
        raise InvalidSettings("stop")

    monkeypatch.setattr("diffclone.cli.train.train_run", stop)
    monkeypatch.setattr("diffclone.cli.train.print_message", said.append)
    command = ["spiral", "--training.updates", "30", "--out", str(tmp_path / "run"), "--device", "cpu"]
    for more in ([], ["--guide.training.updates=50"], ["--preset", "brief"]):
        with pytest.raises(InvalidSettings, match="stop"):
            run_train([*command, *more], "", 0.0)
    assert [method.guide.training.updates for method in trained[:2]] == [60, 50]
    assert trained[2].guide.training.updates > 1000, "a preset names its guide"
    shortened = [line for line in said if "in proportion" in line]
    assert shortened == ["The guide gets 60 updates, in proportion; --guide.training.updates sets them."]


def test_a_class_of_another_package_keeps_its_own_defaults() -> None:
    assert suggest(Robust(), blank(12_800, 60, 20)).training is Robust().training


def report(update: int, loss: float) -> Progress:
    return Progress("policy", update, 100, {"held_out/L_BC": np.array([loss, loss])}, 1.0, 1.0)


def test_overfitting_is_reported_if_the_held_out_loss_rose_for_long() -> None:
    overfitting = Overfitting()
    assert overfitting.message() is None
    for update, loss in ((20, 2.0), (40, 1.0), (60, 1.1), (100, 1.5)):
        overfitting.add(report(update, loss))
    assert "held_out/L_BC was lowest at update 40 (1.0000) and ended at 1.5000" in (overfitting.message() or "")


@pytest.mark.parametrize("losses", [(2.0, 1.5, 1.2, 1.0), (2.0, 1.0, 1.01, 1.02), (2.0, 1.8, 1.0, 1.2)])
def test_a_loss_that_falls_or_has_just_risen_is_not_overfitting(losses: tuple[float, ...]) -> None:
    overfitting = Overfitting()
    for update, loss in zip((20, 40, 90, 100), losses, strict=True):
        overfitting.add(report(update, loss))
    assert overfitting.message() is None
