import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training, fit
from diffclone.cli.augment import Augment
from diffclone.errors import DiffcloneError, InvalidSettings
from diffclone.experiments import preset
from diffclone.fit import Diverged
from diffclone.guides import GUIDES
from diffclone.tasks import TASKS
from diffclone.training import Progress, augmentation
from diffclone.training.augmentation import generate

TINY = DiffusionGuide(training=Training(updates=4), width=8, steps=10)
FLAGS = ("--guide.training.updates", "4", "--guide.width", "8", "--guide.steps", "10", "--device", "cpu")


def line(count: int, bounds: list[list[float]] | None = None) -> Demonstrations:
    """Observations (100 + 5 x, 7) and actions −2 + x/4 of a standard normal x: the second number never varies."""
    x = np.random.default_rng(0).standard_normal(count)
    meta = {"task": "maze", "expert": "line"} | ({} if bounds is None else {"action_bounds": bounds})
    obs = np.stack([100 + 5 * x, np.full(count, 7.1)], 1)
    return Demonstrations.from_arrays(obs, (-2 + x / 4)[:, None], episode_ends=[count], meta=meta)


def test_generated_pairs_are_like_the_experts() -> None:
    guide = DiffusionGuide(training=Training(updates=800, lr=3e-3), width=32)
    demos = line(4000)
    made = generate(guide, demos, 600, seed=1, device="cpu")
    assert made.obs[:, 0].mean() == pytest.approx(100, abs=0.8)
    assert made.obs[:, 0].std() == pytest.approx(5, rel=0.15)
    assert made.act.mean() == pytest.approx(-2, abs=0.04)
    assert made.act.std() == pytest.approx(0.25, rel=0.15)
    assert np.corrcoef(made.obs[:, 0], made.act[:, 0])[0, 1] > 0.98
    assert np.all(made.obs[:, 1] == np.float32(7.1))
    assert len(np.unique(made.obs[:, 0])) > 590  # float32 is coarse at 100
    assert made.lengths.tolist() == [1] * 600
    assert made.meta["task"] == "maze"
    assert "expert" not in made.meta
    about = made.meta["generated"]
    assert (about["seed"], about["demonstrations"]) == (1, demos.fingerprint)
    assert about["guide"]["training"]["updates"] == 800


def test_generated_actions_are_clipped_to_the_bounds() -> None:
    # A guide that knows nothing yet generates pairs that are spread much wider than the expert's.
    low, high = line(50).act.min(), line(50).act.max()
    act = generate(TINY, line(50, [[-2.0], [5.0]]), 300, device="cpu").act
    assert act.min() == low  # the expert went further than the bound
    assert high < act.max() <= 5
    assert generate(TINY, line(50), 300, device="cpu").act.min() < low


def test_a_guide_is_trained_once(tmp_path: Path) -> None:
    demos, reports = line(50), list[Progress]()
    method = DBC(training=Training(updates=1), network=Network(width=4), guide=TINY, normalisation="z-score")
    fit(method, demos, device="cpu", cache=tmp_path)
    cached = generate(TINY, demos, 5, device="cpu", cache=tmp_path, progress=reports.append)
    assert [(now.stage, now.update, now.updates) for now in reports] == [("samples", 5, 5)]
    fresh = generate(TINY, demos, 5, device="cpu", progress=reports.append)
    assert {now.stage for now in reports[1:]} == {"guide", "samples"}
    assert cached.fingerprint == fresh.fingerprint
    generate(TINY, demos, 5, seed=1, device="cpu", cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_pairs_depend_on_the_seed_and_not_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "NUMBERS", 4 * 10 * 3)  # four pairs of three numbers through ten steps
    reports = list[Progress]()
    made = generate(TINY, line(50), 10, device="cpu", progress=reports.append)
    assert [now.update for now in reports if now.stage == "samples"] == [4, 8, 10]
    assert len(np.unique(made.obs[:, 0])) == 10
    assert generate(TINY, line(50), 10, device="cpu").fingerprint == made.fingerprint
    assert generate(TINY, line(50), 10, seed=1, device="cpu").fingerprint != made.fingerprint


def test_invalid_requests_are_one_line() -> None:
    pictures = Demonstrations.from_arrays(np.zeros((3, 64), np.uint8), np.ones((3, 1)), episode_ends=[3])
    with pytest.raises(InvalidSettings, match=r"at least one pair must be generated; 0 were requested\."):
        generate(TINY, line(5), 0)
    with pytest.raises(InvalidSettings, match=r"images cannot be generated: .* Use .* numbers"):
        generate(TINY, pictures, 5)
    wild = replace(TINY, training=Training(updates=40, lr=1e38))
    with pytest.raises(Diverged, match=r"the guide diverged \(NaN weights\)\. Try a smaller learning rate"):
        generate(wild, line(5), 5, device="cpu")


# The command.


def augment(*arguments: object) -> None:
    tyro.cli(Augment, prog="diffclone augment", args=[str(argument) for argument in arguments]).run()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIFFCLONE_CACHE", str(tmp_path_factory.mktemp("guides")))


def test_augment_writes_a_file_to_train_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line(40, [[-9.0], [9.0]]).save(tmp_path / "real.npz")
    augment(tmp_path / "real.npz", "--out", tmp_path / "both.npz", "--ratio", "0.5", *FLAGS, "--json")
    both, real = Demonstrations.load(tmp_path / "both.npz"), line(40)
    told = json.loads(capsys.readouterr().out)
    assert (told["real"], told["generated"], told["fingerprint"]) == (40, 20, both.fingerprint)
    assert np.array_equal(both.obs[:40], real.obs)
    assert np.array_equal(both.act[:40], real.act)
    assert both.lengths.tolist() == [40] + [1] * 20
    assert (both.meta["task"], both.meta["action_bounds"]) == ("maze", [[-9.0], [9.0]])
    generated = both.meta["joined"][0]["meta"]["generated"]
    assert generated["guide"]["width"] == 8
    assert generated["demonstrations"] == real.fingerprint
    policy = fit(BC(training=Training(updates=2), network=Network(width=4)), both, device="cpu")
    assert policy[0](both.obs).shape == (60, 1)


def test_augment_uses_a_tasks_demonstrations_and_prints_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    augment("spiral", "--out", tmp_path / "new" / "a.npz", "--ratio", "0.01", *FLAGS)
    both = Demonstrations.load(tmp_path / "new" / "a.npz")
    assert both.num_steps == TASKS["spiral"].demonstrations().num_steps + 16
    said = capsys.readouterr()
    assert said.out == ""
    assert re.search(r"wrote .*a\.npz: Demonstrations\(.*\)\. Next: diffclone train .*a\.npz", said.err)


def test_a_preset_provides_its_guide() -> None:
    chosen = Augment("maze", Path("a.npz"), preset="demo").choose_guide("maze")
    assert chosen == preset("maze", "dbc", "demo").needs()["guide"] != DiffusionGuide()


def test_a_preset_with_another_guide_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(*_: str) -> DBC:
        return DBC(guide=GUIDES["energy"]())

    monkeypatch.setattr("diffclone.cli.augment.preset", other)
    with pytest.raises(InvalidSettings, match="only a DiffusionGuide generates pairs; maze/dbc/energy has EnergyGuide"):
        Augment("maze", Path("a.npz"), preset="energy").choose_guide("maze")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("maze", "--out", "a.txt"), r"saved as \.npz; a\.txt ends in \.txt"),
        (("maze", "--out", "old.npz"), r"old\.npz exists already and is not overwritten"),
        (("mase", "--out", "a.npz"), "no file and no task is named 'mase'; did you mean the task 'maze'"),
        (("maze", "--out", "a.npz", "--ratio", "0"), "ratio must be finite and above 0; it is 0"),
        (("maze", "--out", "a.npz", "--ratio", "1e-9"), "at least one pair must be generated; 0 were requested"),
        (("maze", "--out", "a.npz", "--preset", "dmo"), "unknown preset 'dmo' of dbc for maze; did you mean 'demo'"),
        (("maze", "--out", "a.npz", "--preset", "demo", *FLAGS), "use --preset or --guide flags, not both"),
        (("mine.npz", "--out", "a.npz", "--preset", "demo"), "--preset demo needs --task NAME"),
        (("car-racing", "--out", "a.npz"), "images cannot be generated"),
    ],
    ids=lambda value: " ".join(value[2:5]) if isinstance(value, tuple) else "",
)
def test_wrong_arguments_are_one_line_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    def work(*_: Any) -> None:
        pytest.fail("training began")

    monkeypatch.setattr(augmentation, "train_part", work)
    monkeypatch.chdir(tmp_path)
    Path("old.npz").write_bytes(b"precious")
    np.savez("mine.npz", obs=np.eye(4, 6), act=np.eye(4, 2), episode_ends=[4])
    with pytest.raises(DiffcloneError, match=message) as caught:
        augment(*arguments)
    assert "\n" not in str(caught.value)
    assert Path("old.npz").read_bytes() == b"precious"
    assert not Path("a.npz").exists()
