import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffclone import Demonstrations
from diffclone.data.splitting import check_fraction
from diffclone.errors import DiffcloneWarning, InvalidData, InvalidFile

MAZE = Path(__file__).parents[2] / "shared/demos/maze.pt"


def make(lengths: list[int], meta: dict[str, Any] | None = None) -> Demonstrations:
    """Return demonstrations whose row i is (i, -i) and (10 i,), so that rows can be recognised."""
    i = np.arange(sum(lengths))
    return Demonstrations.from_arrays(
        np.stack([i, -i], 1), 10.0 * i[:, None], episode_ends=np.cumsum(lengths), meta=meta
    )


def npz_bytes(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def flipped(content: bytes, start: int, count: int) -> bytes:
    return content[:start] + bytes(b ^ 0xFF for b in content[start : start + count]) + content[start + count :]


NOISE = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
GOOD = npz_bytes(obs=NOISE, act=NOISE, episode_ends=np.array([50]))
ONES = np.ones((3, 2))
GIVEN: dict[str, Any] = {"obs": ONES, "act": ONES, "episode_ends": [3]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"act": np.ones((4, 1))}, r"differ in length: 3 != 4"),
        ({"obs": [[0, 0], [0, np.nan], [0, 0]]}, r"obs contains 1 NaN or infinite value, first in row 1, column 1"),
        (
            {"act": [[0, 0], [0, 0], [-np.inf, np.inf]]},
            r"act contains 2 NaN or infinite values, first in row 2, column 0",
        ),
        (
            {"obs": np.full((3, 2), 1e300)},
            r"obs has values that 32-bit .*, such as 1e\+300 in column 0; the largest is 3\.4e\+38",
        ),
        ({"act": np.ones(3)}, r"act must be \(steps, action size\); its shape is \(3,\).*act\[:, None\]"),
        (
            {"obs": np.ones((3, 8, 8, 3))},
            r"its shape is \(3, 8, 8, 3\)\. Images are .*at least 36 pixels.*--obs-keys obs/image",
        ),
        ({"obs": np.ones((3, 2, 2))}, r"obs must be \(steps, size\); its shape is \(3, 2, 2\)"),
        ({"obs": np.ones(3)}, r"obs must be \(steps, size\); its shape is \(3,\)"),
        ({"obs": [["a", "b"]] * 3}, r"obs must contain numbers"),
        ({"obs": [[None, 1.0]] * 3}, r"obs must contain numbers; it contains object"),
        ({"obs": np.ones((0, 2)), "act": np.ones((0, 2)), "episode_ends": []}, r"0 steps"),
        ({"episode_ends": [1, 2]}, r"number of steps, 3; they are 1, 2\."),
        ({"episode_ends": [1, 4]}, r"number of steps, 3; they are 1, 4\."),
        ({"episode_ends": [2, 2, 3]}, r"they are 2, 2, 3\."),
        ({"episode_ends": [0, 3]}, r"they are 0, 3\."),
        ({"episode_ends": [1.5, 3.0]}, r"integers; it is float64"),
        ({"episode_ends": [[3]]}, r"integers; .* shape \(1, 1\)"),
        ({"episode_ends": None}, r"exactly one of episode_ends .* or done"),
        ({"done": [0, 0, 1]}, r"exactly one of episode_ends .* or done"),
        ({"episode_ends": None, "done": [0, 1]}, r"done and obs differ in length: 2 != 3"),
    ],
)
def test_invalid_arrays_are_refused_with_both_sides(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        Demonstrations.from_arrays(**(GIVEN | arguments))


def test_true_and_false_are_numbers() -> None:
    demos = Demonstrations.from_arrays(ONES > 0, ONES < 0, episode_ends=[3])
    assert np.array_equal(demos.obs, ONES)
    assert not demos.act.any()


def stamps(steps: int) -> Any:
    return np.stack([1.7e9 + 0.01 * np.arange(steps), 48 + 1e-9 * np.arange(steps), np.full(steps, 1e9)], 1)


def test_what_32_bit_numbers_lose_is_a_warning(tmp_path: Path) -> None:
    given: dict[str, Any] = {"act": np.ones((400, 1)), "episode_ends": [400]}
    np.savez(tmp_path / "a.npz", obs=stamps(400), **given)
    for read in (
        lambda: Demonstrations.from_arrays(stamps(400), **given),
        lambda: Demonstrations.load(tmp_path / "a.npz"),
    ):
        # The second column has only rounding errors, and the third is constant.
        with pytest.warns(DiffcloneWarning, match=r"obs: .*lose most of what varies in column 0: .* 1\.3e\+02 apart"):
            read()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Demonstrations.from_arrays(stamps(400) - [1.7e9, 0, 0], **given)
        Demonstrations.from_arrays(stamps(400)[:, 1:], **given)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([[-1, -1, -1], [1, 1]], r"per action dimension \(2\) in each; low has shape \(3,\) and high has shape \(2,\)"),
        ([[-1, -1], [[1, 1]]], r"low has shape \(2,\) and high has shape \(1, 2\)"),
        ([-1.0, 1.0], r"low has shape \(\) and high has shape \(\)"),
        (1.0, r"must be \[low, high\] .*; they are 1\.0\."),
        ([[-1, -1]], r"they are \[\[-1, -1\]\]"),
        ("abc", r"they are abc"),
        ([[-1, 2], [1, 1]], r"no low above its high; in dimension 1 low is 2 and high is 1"),
        ([[-1, np.nan], [1, 1]], r"in dimension 1 low is nan and high is 1"),
        ([[-1, -1], [np.nan, 1]], r"in dimension 0 low is -1 and high is nan"),
    ],
)
def test_wrong_action_bounds_are_refused_on_construction(bounds: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        Demonstrations.from_arrays(**GIVEN, meta={"action_bounds": bounds})


@pytest.mark.parametrize("bounds", [[[-1, -1], [1, 1]], np.array([[-1, 0], [1, 0]]), ([-np.inf, 0], [np.inf, 1]), None])
def test_action_bounds_may_be_arrays_equal_or_infinite(bounds: Any) -> None:
    demos = Demonstrations.from_arrays(**GIVEN, meta={"action_bounds": bounds})
    assert np.array_equal(demos.action_bounds or (), () if bounds is None else np.asarray(bounds))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npz", npz_bytes(obs=ONES, episode_ends=[3]), r"lacks act; it has obs, episode_ends"),
        ("a.npz", npz_bytes(), r"lacks obs and act; it has nothing"),
        ("a.npz", npz_bytes(obs=ONES, act=ONES, episode_ends=[4]), r"a\.npz: .* number of steps, 3"),
        ("a.npz", npz_bytes(obs=ONES, act=ONES, episode_ends=[3], meta="{"), r"meta is not JSON"),
        ("a.npz", npz_bytes(obs=ONES, act=ONES, episode_ends=[3], meta="[1]"), r"meta"),
        ("a.npz", npz_bytes(obs=np.array([{}]), act=ONES, episode_ends=[3]), r"has Python objects, stored as a pickle"),
        ("a.npz", b"hello", r"not a readable \.npz"),
        ("a.npz", npy_bytes(ONES), r"not a readable \.npz"),
        ("a.npz", GOOD[: len(GOOD) // 2], r"not a readable \.npz"),
        ("a.npz", flipped(GOOD, 65, 3), r"not a readable \.npz"),
        ("a.npz", b"", r"is empty \(0 bytes\)"),
        ("a.pt", b"hello", r"not a readable \.pt"),
        ("a.log", b"1,2", r"cannot recognise the format of .*a\.log\. Known formats: npz \(\*\.npz\), pt \(\*\.pt\)"),
    ],
)
def test_damaged_files_are_refused_with_their_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidData, match=message) as caught:
        Demonstrations.load(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_missing_files_and_unknown_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="no such file"):
        Demonstrations.load(tmp_path / "none.npz")
    with pytest.raises(InvalidData, match="is an empty folder"):
        Demonstrations.load(tmp_path)
    (tmp_path / "notes.txt").write_text("1, 2")
    with pytest.raises(InvalidData, match="cannot recognise the format"):
        Demonstrations.load(tmp_path)
    with pytest.raises(InvalidData, match="name of the data is empty"):  # not the current folder
        Demonstrations.load("")


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ([torch.ones(3, 2)], r"contains a list; a dict of tensors"),
        ({"obs": torch.ones(3, 2), "done": torch.ones(3)}, r"lacks actions"),
        ({"obs": Path("x")}, r"not a readable \.pt"),
    ],
)
def test_invalid_pt_files_are_refused(tmp_path: Path, saved: Any, message: str) -> None:
    torch.save(saved, tmp_path / "a.pt")
    with pytest.raises(InvalidData, match=message):
        Demonstrations.load(tmp_path / "a.pt")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_pt_files_of_the_release_are_read(tmp_path: Path, dtype: torch.dtype) -> None:
    obs, actions, done = torch.arange(8.0).reshape(4, 2), torch.ones(4, 1), torch.tensor([0.0, 1.0, 0.0, 0.0])
    torch.save({"obs": obs.to(dtype), "actions": actions, "done": done}, tmp_path / "a.pt")
    demos = Demonstrations.load(tmp_path / "a.pt")
    assert demos.obs.tolist() == obs.tolist()
    # The last episode has no flag because it was cut off. It is kept.
    assert demos.episode_ends.tolist() == [2, 4]
    assert demos.meta == {"source": "a.pt"}


def test_npz_round_trip(tmp_path: Path) -> None:
    demos = make([3, 1, 2], {"task": "maze", "action_bounds": [[-1.0], [1.0]], "λ": None})
    demos.save(tmp_path / "a.npz")
    again = Demonstrations.load(str(tmp_path / "a.npz"))
    assert np.array_equal(again.obs, demos.obs)
    assert np.array_equal(again.act, demos.act)
    assert np.array_equal(again.episode_ends, demos.episode_ends)
    assert again.meta == demos.meta
    assert again.fingerprint == demos.fingerprint
    assert again.action_bounds == (np.float32(-1), np.float32(1))


def test_save_does_not_overwrite(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"precious")
    with pytest.raises(InvalidFile, match="exists already and is not overwritten"):
        make([2]).save(tmp_path / "a.npz")
    assert (tmp_path / "a.npz").read_bytes() == b"precious"
    with pytest.raises(InvalidData, match=r"cannot save demonstrations as .*a\.txt\. Formats to save: npz"):
        make([2]).save(tmp_path / "a.txt")


@given(st.lists(st.integers(1, 5), min_size=2, max_size=12), st.floats(0.05, 0.95), st.integers(0, 9))
@settings(deadline=None)
def test_a_split_is_by_episode_disjoint_and_complete(lengths: list[int], fraction: float, seed: int) -> None:
    demos = make(lengths)
    held_out = round(fraction * len(lengths))
    if not 0 < held_out < len(lengths):
        with pytest.raises(InvalidData, match="leaves one side empty"):
            demos.split(fraction, seed=seed)
        return
    sides = demos.split(fraction, seed=seed)
    assert sides[1].num_episodes == held_out
    found = [obs[:, 0].tolist() for side in sides for obs, _ in side.episodes()]
    assert sorted(found) == [obs[:, 0].tolist() for obs, _ in demos.episodes()]
    assert all(np.array_equal(side.act[:, 0], 10 * side.obs[:, 0]) for side in sides)


def test_a_split_depends_on_its_seed() -> None:
    demos = make([1] * 30)
    first, again, other = (demos.split(0.5, seed=seed)[0].fingerprint for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize(("fraction", "episodes"), [(1.0, 8), (0.5, 4), (0.01, 1)])
def test_subsample_keeps_whole_episodes_in_order(fraction: float, episodes: int) -> None:
    part = make([2] * 8).subsample(fraction)
    assert part.num_episodes == episodes
    assert np.all(np.diff(part.obs[:, 0]) > 0)
    assert part.lengths.tolist() == [2] * episodes


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5])
def test_subsample_refuses_invalid_fractions(fraction: float) -> None:
    with pytest.raises(InvalidData, match="above 0 and at most 1"):
        make([2] * 8).subsample(fraction)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.floats(0.01, 1), st.integers(0, 9))
@settings(deadline=None)
def test_subsample_by_transition_keeps_steps_in_their_episodes(lengths: list[int], fraction: float, seed: int) -> None:
    demos = make(lengths)
    part = demos.subsample(fraction, seed=seed, by="transition")
    kept = part.obs[:, 0].astype(int)
    assert len(kept) == max(1, int(fraction * sum(lengths))) == part.meta["transitions_taken"]
    assert np.all(np.diff(kept) > 0)
    assert np.array_equal(part.act[:, 0], 10 * part.obs[:, 0])
    # Each remaining episode has all kept steps of one old episode.
    old = [set(obs[:, 0].astype(int)) & set(kept) for obs, _ in demos.episodes()]
    assert [set(obs[:, 0].astype(int)) for obs, _ in part.episodes()] == [steps for steps in old if steps]


def test_subsample_by_transition_depends_on_its_seed_and_rounds_down() -> None:
    demos = make([50, 50])
    # 0.29 · 100 is 28.999…, of which the released code keeps 28.
    parts = [demos.subsample(0.29, seed=seed, by="transition") for seed in (0, 0, 1)]
    assert [part.num_steps for part in parts] == [28] * 3
    assert parts[0].fingerprint == parts[1].fingerprint != parts[2].fingerprint
    assert demos.subsample(1.0, by="transition").fingerprint == demos.fingerprint


def test_take_returns_episodes_in_the_given_order() -> None:
    part = make([3, 1, 2]).take([2, 0])
    assert part.obs[:, 0].tolist() == [4, 5, 0, 1, 2]
    assert part.episode_ends.tolist() == [2, 5]
    with pytest.raises(InvalidData, match="episodes 3 were requested; there are 0 … 2"):
        make([3, 1, 2]).take([3])


def test_action_noise_has_its_level_and_changes_nothing_else() -> None:
    demos = make([3000, 2000], {"task": "maze"})
    noisy = demos.with_action_noise(0.25, seed=3)
    added = noisy.act - demos.act
    assert added.mean() == pytest.approx(0, abs=0.02)
    assert added.std() == pytest.approx(0.25, rel=0.05)
    assert np.array_equal(noisy.obs, demos.obs)
    assert np.array_equal(noisy.episode_ends, demos.episode_ends)
    assert noisy.meta == {"task": "maze", "action_noise": [{"level": 0.25, "seed": 3}]}
    again = noisy.with_action_noise(1.0)
    assert again.meta["action_noise"] == [{"level": 0.25, "seed": 3}, {"level": 1.0, "seed": 0}]


def test_action_noise_depends_on_its_seed_and_is_proportional_to_its_level() -> None:
    demos = Demonstrations.from_arrays(np.zeros((9, 1)), np.zeros((9, 2)), episode_ends=[9])
    one, two = demos.with_action_noise(0.1), demos.with_action_noise(0.2)
    assert np.allclose(two.act, 2 * one.act)
    prints = [demos.with_action_noise(0.1, seed=seed).fingerprint for seed in (0, 1)]
    assert prints[0] == one.fingerprint != prints[1]
    assert demos.with_action_noise(0.0).fingerprint == demos.fingerprint


def test_action_noise_is_clipped_to_the_bounds() -> None:
    act, meta = np.tile([[1.0, 0.0]], (200, 1)), {"action_bounds": [[-1.0, -0.5], [1.0, 0.5]]}
    noisy = Demonstrations.from_arrays(act, act, episode_ends=[200], meta=meta).with_action_noise(2.0)
    assert noisy.act.min(0).tolist() == [-1, -0.5]
    assert noisy.act.max(0).tolist() == [1, 0.5]


def test_expert_actions_beyond_the_bounds_are_not_clipped() -> None:
    act, meta = np.array([[-3.0], [0.0], [0.5]]), {"action_bounds": [[-1.0], [1.0]]}
    demos = Demonstrations.from_arrays(act, act, episode_ends=[3], meta=meta)
    assert demos.action_range == (-3, 1)
    assert demos.with_action_noise(0.0).fingerprint == demos.fingerprint
    noisy = [demos.with_action_noise(5.0, seed=seed).act for seed in range(30)]
    assert (np.min(noisy), np.max(noisy)) == (-3, 1)


@pytest.mark.parametrize("level", [-0.1, np.inf, np.nan])
def test_invalid_noise_levels_are_refused(level: float) -> None:
    with pytest.raises(InvalidData, match="must be finite and not negative; it is"):
        make([2]).with_action_noise(level)


def test_joined_appends_episodes(tmp_path: Path) -> None:
    bounds = [[-1.0], [1.0]]
    first, second, third = make([2, 1], {"task": "maze", "action_bounds": bounds}), make([1, 3], {"a": 1}), make([1])
    both = first.joined(second)
    assert both.obs[:, 0].tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert both.act[:, 0].tolist() == [0, 10, 20, 0, 10, 20, 30]
    assert both.episode_ends.tolist() == [2, 3, 4, 7]
    added = {"fingerprint": second.fingerprint, "episodes": 2, "steps": 4, "meta": {"a": 1}}
    assert both.meta == {"task": "maze", "action_bounds": bounds, "joined": [added]}
    three = both.joined(third)
    assert [part["fingerprint"] for part in three.meta["joined"]] == [second.fingerprint, third.fingerprint]
    three.save(tmp_path / "three.npz")
    assert Demonstrations.load(tmp_path / "three.npz").meta == three.meta


@pytest.mark.parametrize(
    ("obs", "act", "other"),
    [
        (np.ones((3, 4)), np.ones((3, 1)), r"obs 4 \(float32\), act 1"),
        (np.ones((3, 2)), np.ones((3, 5)), r"obs 2 \(float32\), act 5"),
        (np.ones((3, 2), np.uint8), np.ones((3, 1)), r"obs 2 \(uint8\), act 1"),
    ],
)
def test_joined_refuses_different_sizes_and_states_both(
    obs: npt.NDArray[Any], act: npt.NDArray[Any], other: str
) -> None:
    demos = Demonstrations.from_arrays(obs, act, episode_ends=[3])
    with pytest.raises(InvalidData, match=rf"cannot be joined: obs 2 \(float32\), act 1, and {other}\. Both must"):
        make([3]).joined(demos)


def test_arrays_are_read_only_copies() -> None:
    obs = np.ones((3, 2), dtype=np.float32)
    demos = Demonstrations.from_arrays(obs, obs, episode_ends=[3])
    obs[0] = 7
    assert demos.obs[0, 0] == 1
    for array in (demos.obs, demos.act, demos.episode_ends):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2


def test_repr_shows_sizes_source_and_fingerprint() -> None:
    demos = make([3, 1, 2], {"task": "maze"})
    assert repr(demos) == f"Demonstrations(3 episodes, 6 steps, obs 2, act 1, maze, {demos.fingerprint})"
    assert len(demos) == 6


def test_the_fingerprint_depends_on_the_arrays_only() -> None:
    demos = make([3, 1, 2])
    assert make([3, 1, 2], {"task": "maze"}).fingerprint == demos.fingerprint
    act = demos.act.copy()
    act[0] = np.nextafter(act[0], 1)
    others = [
        make([3, 2, 1]),
        Demonstrations.from_arrays(demos.obs, act, episode_ends=demos.episode_ends),
        Demonstrations.from_arrays(demos.obs[:, ::-1], demos.act, episode_ends=demos.episode_ends),
    ]
    assert len({d.fingerprint for d in (demos, *others)}) == 4


def test_an_episode_keeps_its_fingerprint_in_every_file_split_and_order(tmp_path: Path) -> None:
    demos = make([3, 1, 2, 4], {"task": "maze"})
    prints = demos.episode_fingerprints
    assert len(set(prints)) == 4
    assert all(len(fingerprint) == 16 for fingerprint in prints)
    demos.save(tmp_path / "a.npz")
    assert Demonstrations.load(tmp_path / "a.npz").episode_fingerprints == prints
    assert demos.take([2, 0]).episode_fingerprints == (prints[2], prints[0])
    train, held_out = demos.split(0.25)
    assert sorted(train.episode_fingerprints + held_out.episode_fingerprints) == sorted(prints)
    assert make([3]).joined(demos).episode_fingerprints == (prints[0], *prints)
    act = demos.act.copy()
    act[3] += 1
    changed = Demonstrations.from_arrays(demos.obs, act, episode_ends=demos.episode_ends)
    assert [a == b for a, b in zip(changed.episode_fingerprints, prints, strict=True)] == [True, False, True, True]


def test_shared_episodes_are_found_by_fingerprint() -> None:
    demos = make([3, 1, 2, 4])
    train, held_out = demos.split(0.25)
    assert train.find_shared_episodes(held_out) == []
    assert demos.take([2, 0, 3]).find_shared_episodes(demos.take([0, 1])) == [1]
    assert demos.find_shared_episodes(train.episode_fingerprints) == [
        i for i, fingerprint in enumerate(demos.episode_fingerprints) if fingerprint in train.episode_fingerprints
    ]


@pytest.mark.skipif(not MAZE.exists(), reason="the authors' demonstrations are not beside the repository")
def test_the_authors_maze_demonstrations() -> None:
    demos = Demonstrations.load(MAZE)
    assert (demos.num_episodes, demos.num_steps) == (100, 18525)
    assert (demos.obs.shape[1], demos.act.shape[1]) == (6, 2)
    assert demos.lengths.mean() == 185.25


def test_joined_refuses_the_same_size_with_other_columns() -> None:
    parts = {"state": np.zeros((4, 2)), "goal": np.ones((4, 2))}
    first, second = (
        Demonstrations.from_episodes([{**{f"obs/{key}": parts[key] for key in keys}, "act": np.zeros((4, 1))}])
        for keys in (("state", "goal"), ("goal",))
    )
    assert first.meta["observation_keys"] != second.meta.get("observation_keys")
    swapped = Demonstrations(first.obs, first.act, first.episode_ends, {"observation_keys": [["b", 2], ["a", 2]]})
    with pytest.raises(InvalidData, match="different parts of observations cannot be joined"):
        first.joined(swapped)
    images = [
        Demonstrations(np.zeros((4, 60), np.uint8), first.act, first.episode_ends, {"image": sides})
        for sides in ([3, 4, 5], [3, 5, 4])
    ]
    with pytest.raises(InvalidData, match=r"different images cannot be joined: \[3, 4, 5\], and \[3, 5, 4\]"):
        images[0].joined(images[1])
    assert first.joined(Demonstrations(first.obs, first.act, first.episode_ends)).num_episodes == 2


def test_metadata_with_numpy_values_can_be_saved(tmp_path: Path) -> None:
    meta = {"action_bounds": [np.array([-1.0]), np.array([1.0])], "seed": np.int64(3), "nested": {"x": np.float32(0.5)}}
    demos = Demonstrations.from_arrays(np.zeros((3, 1)), np.zeros((3, 1)), episode_ends=[3], meta=meta)
    demos.save(tmp_path / "a.npz")
    assert (
        Demonstrations.load(tmp_path / "a.npz").meta["action_bounds"] == [[-1.0], [1.0]] == demos.meta["action_bounds"]
    )
    assert (demos.meta["seed"], demos.meta["nested"]) == (3, {"x": 0.5})
    with pytest.raises(InvalidData, match=r"meta must be what JSON can store; it contains .*, a object"):
        Demonstrations.from_arrays(np.zeros((3, 1)), np.zeros((3, 1)), episode_ends=[3], meta={"a": object()})


@pytest.mark.parametrize("done", [["False", "False", "True"], [0.0, np.nan, 1.0], [False, None, True]])
def test_flags_that_are_no_flags_are_refused(done: Any) -> None:
    with pytest.raises(InvalidData, match="done must contain true and false"):
        Demonstrations.from_arrays(np.zeros((3, 1)), np.zeros((3, 1)), done=done)


def test_subsample_refuses_an_unknown_unit() -> None:
    check_fraction(0.5, "transition")
    with pytest.raises(InvalidData, match="by must be 'episode' or 'transition'; it is 'episodes'"):
        check_fraction(0.5, "episodes")
