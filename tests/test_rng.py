from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from diffclone.rng import GOLDEN, Clock, Rng, hash_key, mix

MASK = (1 << 64) - 1


def splitmix64(state: int, count: int) -> list[int]:
    numbers: list[int] = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        numbers.append(z ^ (z >> 31))
    return numbers


def draw_all(rng: Rng) -> list[Tensor]:
    return [rng["a"].normal(3, 2), rng["b"].integers(1000, 5), rng["a"].uniform(4), rng["a"].normal(3, 2)]


def test_the_published_first_number_of_splitmix64() -> None:
    assert splitmix64(0, 1) == [0xE220A8397B1DCDAF]
    assert int(mix(torch.tensor(GOLDEN))) & MASK == 0xE220A8397B1DCDAF


@pytest.mark.parametrize("seed", [0, 1, 2**40, -3])
@pytest.mark.parametrize("update", [0, 7, 10**6])
def test_numbers_equal_an_integer_reference(seed: int, update: int) -> None:
    rng, count = Rng([seed]), 6
    rng.clock.start(torch.tensor(update), 1)
    # Update u of a stream starts where u · count numbers were drawn; the second call has a key of its own.
    skipped = update * count * 0x9E3779B97F4A7C15
    first, second = (splitmix64(hash_key(seed, "/s", call) + skipped, count) for call in (0, 1))
    assert rng["s"].integers(1 << 31, count)[0].tolist() == [z >> 33 for z in first]
    assert rng["s"].uniform(count)[0].tolist() == [((z >> 41) + 0.5) / 2**23 for z in second]


def test_a_member_draws_the_same_alone_or_stacked() -> None:
    stacked = draw_all(Rng([3, 5, 9]))
    for member, seed in enumerate((3, 5, 9)):
        for together, alone in zip(stacked, draw_all(Rng([seed])), strict=True):
            assert torch.equal(together[member], alone[0])


@pytest.mark.parametrize(("few", "many"), [((3, 2), (50, 2)), ((3, 3), (4, 3)), ((1,), (2,)), ((2, 5, 3), (9, 5, 3))])
def test_more_rows_do_not_change_the_first_ones(few: tuple[int, ...], many: tuple[int, ...]) -> None:
    for draw in (Rng.normal, Rng.uniform):
        short, long = draw(Rng([0, 1])["a"], *few), draw(Rng([0, 1])["a"], *many)
        assert torch.equal(long[:, : few[0]], short)


def test_named_streams_differ_and_are_reproducible() -> None:
    def streams() -> list[Tensor]:
        rng = Rng([0])
        return [s.normal(8) for s in (rng, rng["a"], rng["b"], rng["a"]["b"], rng["b"]["a"])]

    numbers = streams()
    assert len({tuple(t.flatten().tolist()) for t in numbers}) == len(numbers)
    assert all(torch.equal(a, b) for a, b in zip(numbers, streams(), strict=True))


def test_draws_of_one_stream_do_not_change_another() -> None:
    quiet, busy = Rng([0]), Rng([0])
    busy["other"].normal(100)
    assert torch.equal(quiet["a"].normal(4), busy["a"].normal(4))


def test_successive_calls_updates_and_seeds_differ() -> None:
    rng = Rng([0, 1])
    first, second = rng["a"].normal(8), rng["a"].normal(8)
    rng.clock.start(torch.tensor(1), 1)
    third = rng["a"].normal(8)
    rows = [tuple(row) for t in (first, second, third) for row in t.tolist()]
    assert len(set(rows)) == 6


def test_a_block_of_updates_has_the_numbers_of_single_updates() -> None:
    block, single = Rng([4, 2]), Rng([4, 2])
    block.clock.start(torch.tensor(7), 5)
    for update in range(7, 12):
        single.clock.start(torch.tensor(update), 1)
        for a, b in zip(draw_all(block), draw_all(single), strict=True):
            assert torch.equal(a, b)
        block.clock.advance()


def test_predrawn_numbers_are_those_of_the_update() -> None:
    def second_update(*, predrawn: bool) -> list[Tensor]:
        rng = Rng([0, 1])
        rng.clock.start(torch.tensor(0), 2)
        draw_all(rng)
        rng.clock.advance()
        rng.clock.predrawn = rng.clock.current_draws() if predrawn else None
        drawn = draw_all(rng)
        assert not rng.clock.predrawn
        return drawn

    for given, drawn in zip(second_update(predrawn=True), second_update(predrawn=False), strict=True):
        assert torch.equal(given, drawn)


def test_a_clock_can_be_shared() -> None:
    clock = Clock(torch.device("cpu"))
    a, b = Rng([0], clock=clock), Rng([0], clock=clock)
    assert not torch.equal(a.uniform(4), b.uniform(4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_numbers_are_normal(dtype: torch.dtype) -> None:
    x = Rng([0], dtype=dtype)["a"].normal(200_001)[0].double().numpy()
    assert abs(x.mean()) < 0.01
    assert x.var() == pytest.approx(1, abs=0.015)
    assert abs(stats.kurtosis(x)) < 0.05
    assert stats.kstest(x, "norm").pvalue > 1e-3
    # The two halves come from one radius each: they must not be correlated, nor their squares.
    pairs = x[:100_000], x[100_001:200_001]
    assert abs(np.corrcoef(*pairs)[0, 1]) < 0.012
    assert abs(np.corrcoef(*np.square(pairs))[0, 1]) < 0.012


def test_members_are_uncorrelated() -> None:
    x = Rng(range(8))["batch"].normal(50_000).numpy()
    assert np.abs(np.corrcoef(x) - np.eye(8)).max() < 0.02


def test_uniform_numbers_are_uniform_and_never_at_the_ends() -> None:
    x = Rng([0])["a"].uniform(4_000_000)[0]
    assert 0 < x.min().item() < 2e-6
    assert 1 - 2e-6 < x.max().item() < 1
    assert stats.kstest(x[:100_000].double().numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("high", [1, 2, 7, 1000])
def test_integers_cover_their_range_evenly(high: int) -> None:
    x = Rng([0])["a"].integers(high, 100 * high)[0]
    counts = torch.bincount(x, minlength=high).numpy()
    assert len(counts) == high
    assert high == 1 or stats.chisquare(counts).pvalue > 1e-3


DRAWS: list[Callable[[Rng], Tensor]] = [
    lambda rng: rng.normal(3, 2),
    lambda rng: rng.uniform(3),
    lambda rng: rng.integers(5, 3, 2),
    lambda rng: rng.kept(128, 3),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_draws_on_the_meta_device_have_the_same_shapes_and_types(draw: Callable[[Rng], Tensor]) -> None:
    real, meta = (draw(Rng([0, 1], device=device)["a"]) for device in ("cpu", "meta"))
    assert (meta.shape, meta.dtype, meta.device.type) == (real.shape, real.dtype, "meta")
