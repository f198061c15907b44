from typing import Any

import numpy as np
import pytest

from diffclone import BC, DBC, Demonstrations, DiffusionPolicy
from diffclone.errors import InvalidSettings
from diffclone.methods import METHODS
from diffclone.training import Progress
from diffclone.training.overfitting import Overfitting
from diffclone.training.suggestion import suggest, suggested_updates, suggested_width


def blank(steps: int, obs: int, act: int, **meta: Any) -> Demonstrations:
    rows = np.zeros((steps, obs), dtype=np.uint8 if meta.pop("pictures", False) else np.float32)
    return Demonstrations.from_arrays(rows, np.zeros((steps, act)), episode_ends=[steps], meta=meta)


def test_updates_follow_the_data_within_bounds() -> None:
    assert suggested_updates(12_800) == 15_000
    assert suggested_updates(10) == 5_000
    assert suggested_updates(10**9) == 50_000


def test_widths_follow_the_problem() -> None:
    assert [suggested_width(size) for size in (8, 16, 17, 64, 65)] == [256, 256, 512, 512, 1024]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gets_a_size_and_a_schedule(name: str) -> None:
    small = suggest(METHODS[name](), name, blank(12_800, 6, 2))
    large = suggest(METHODS[name](), name, blank(25_600, 60, 20))
    assert small.training.updates >= 15_000
    assert large.training.updates == 2 * small.training.updates
    assert large != small


def test_a_guide_learns_for_longer_and_a_diffusion_policy_for_longer_still() -> None:
    demos = blank(12_800, 6, 2)
    dbc = suggest(DBC(), "dbc", demos)
    assert isinstance(dbc, DBC)
    assert (dbc.training.updates, dbc.guide.training.updates) == (15_000, 30_000)
    assert dbc.coefficient == "auto"
    assert suggest(DiffusionPolicy(), "diffusion-policy", demos).training.updates == 75_000


def test_pictures_need_their_sides() -> None:
    with pytest.raises(InvalidSettings, match=r"pictures of 8192 bytes whose sides are not known"):
        suggest(BC(), "bc", blank(200, 8192, 3, pictures=True))
    known = blank(200, 8192, 3, pictures=True, image=[2, 64, 64])
    dbc = suggest(DBC(), "dbc", known)
    assert isinstance(dbc, DBC)
    assert dbc.network.image == (2, 64, 64)
    assert dbc.encoder is not None
    assert dbc.encoder.image == (2, 64, 64)


def report(update: int, loss: float) -> Progress:
    return Progress("policy", update, 100, {"held_out/L_BC": np.array([loss, loss])}, 1.0, 1.0)


def test_overfitting_is_noticed_when_the_held_out_loss_rose_for_long() -> None:
    watched = Overfitting()
    assert watched.notice() is None
    for update, loss in ((20, 2.0), (40, 1.0), (60, 1.1), (100, 1.5)):
        watched.see(report(update, loss))
    assert "held_out/L_BC was lowest at update 40 (1.0000) and ended at 1.5000" in (watched.notice() or "")


@pytest.mark.parametrize("losses", [(2.0, 1.5, 1.2, 1.0), (2.0, 1.0, 1.01, 1.02), (2.0, 1.8, 1.0, 1.2)])
def test_a_loss_that_falls_or_levels_or_has_just_turned_is_no_overfitting(losses: tuple[float, ...]) -> None:
    watched = Overfitting()
    for update, loss in zip((20, 40, 90, 100), losses, strict=True):
        watched.see(report(update, loss))
    assert watched.notice() is None
