import itertools

import numpy as np
import numpy.typing as npt
import pytest

from diffclone.experiments.verdicts import ALPHA, Evidence, Verdict, compute_p_values, decide_all
from diffclone.statistics import Estimate, estimate_contrast, holm

Outcomes = npt.NDArray[np.bool_]


def known(mean: float, error: float = 1.0, seeds: int = 16) -> Estimate:
    return Estimate(mean, error, 30.0, seeds)


def verdict_of(*estimates: Estimate, margin: float = 2.0, comparison: str = "above", **more: float) -> Verdict:
    data = Evidence(comparison, estimates, margin, **more)  # pyright: ignore[reportArgumentType]
    return decide_all([data])[0].verdict


def simulate(rng: np.random.Generator, gain: float, seeds: int = 10, starts: int = 40) -> Outcomes:
    """Successes on starts that differ in difficulty, of seeds that differ in skill."""
    start, seed = rng.normal(1.0, 1.0, (1, starts)), rng.normal(0.0, 0.5, (seeds, 1))
    skills = np.stack([start + seed, start + rng.normal(0.0, 0.5, (seeds, 1)) + gain])
    return rng.random(skills.shape) < 1 / (1 + np.exp(-skills))


def simulated_test(rng: np.random.Generator, gain: float, margin: float = 2.0, *, paired: bool = True) -> Evidence:
    baseline, ours = simulate(rng, gain)
    return Evidence("above", (estimate_contrast([100.0 * ours, 100.0 * baseline], [1.0, -1.0], paired=paired),), margin)


def test_holm_by_hand() -> None:
    # 4 · 0.01 = 0.04; 3 · 0.02 = 0.06; 2 · 0.025 = 0.05 is raised to 0.06; 1 · 0.5.
    assert holm([0.02, 0.5, 0.01, 0.025]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_five_verdicts() -> None:
    assert verdict_of(known(5.0)) == "reproduced"
    assert verdict_of(known(-5.0)) == "contradicted"
    assert verdict_of(known(0.0, 0.1)) == "equivalent"
    assert verdict_of(known(1.5)) == "unresolved"
    assert verdict_of(known(1.5), headroom=1.0) == "no headroom"
    assert verdict_of(known(0.0, 0.1), headroom=1.0) == "no headroom"


def test_a_difference_that_is_shown_needs_no_headroom() -> None:
    assert verdict_of(known(5.0), headroom=1.0) == "reproduced"
    assert verdict_of(known(-5.0), headroom=1.0) == "contradicted"
    assert verdict_of(known(1.5), headroom=2.5) == "unresolved"


def test_a_positive_difference_below_the_margin_is_equivalent() -> None:
    assert compute_p_values(Evidence("above", (known(1.0, 0.1),), 2.0)).holds < 1e-6
    assert verdict_of(known(1.0, 0.1)) == "equivalent"


def test_level_and_within() -> None:
    assert verdict_of(known(0.0, 0.5), comparison="level") == "reproduced"
    assert verdict_of(known(9.0, 0.5), comparison="level") == "reproduced"
    assert verdict_of(known(-9.0, 0.5), comparison="level") == "contradicted"
    assert verdict_of(known(-2.0, 0.5), comparison="level") == "unresolved"
    assert verdict_of(known(0.0, 0.5), comparison="within") == "reproduced"
    assert verdict_of(known(9.0, 0.5), comparison="within") == "contradicted"
    assert verdict_of(known(-9.0, 0.5), comparison="within") == "contradicted"


def test_a_claim_of_several_parts_needs_all_of_them() -> None:
    assert verdict_of(known(5.0), known(6.0)) == "reproduced"
    assert verdict_of(known(5.0), known(1.0)) == "unresolved"
    assert verdict_of(known(5.0), known(-6.0)) == "contradicted"
    first, both = (Evidence("above", parts, 2.0) for parts in ((known(-2.4),), (known(-2.4), known(9.0))))
    assert compute_p_values(both).fails == pytest.approx(2 * compute_p_values(first).fails)


def test_what_cannot_be_decided_says_why_and_does_not_count() -> None:
    few, missing = (
        Evidence("above", (known(9.0, seeds=9),), 2.0),
        Evidence("above", (), 2.0, problem="IBC", missing=True),
    )
    old = Evidence("above", (known(9.0),), 2.0, problem="quick")
    sure = Evidence("above", (known(2.2),), 2.0)
    found = decide_all([few, missing, old, sure])
    assert [(v.verdict, v.reason) for v in found[:3]] == [
        ("unresolved", "9 seeds"),
        ("not run", "IBC"),
        ("unresolved", "quick"),
    ]
    assert all(v.p is None for v in found[:3])
    assert found[3] == decide_all([sure])[0]


def test_more_tests_need_stronger_evidence() -> None:
    weak = Evidence("above", (known(2.5),), 2.0)
    assert decide_all([weak])[0].verdict == "reproduced"
    assert {v.verdict for v in decide_all([weak] * 10)} == {"unresolved"}


@pytest.mark.parametrize("paired", [True, False])
def test_exchanging_the_methods_exchanges_the_verdicts(paired: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(0)
    opposite = {"reproduced": "contradicted", "contradicted": "reproduced"}
    seen: set[str] = set()
    for gain in np.linspace(-2, 2, 41):
        a, b = simulate(rng, float(gain))
        one, other = (
            decide_all([Evidence("above", (estimate_contrast(pair, [1.0, -1.0], paired=paired),), 0.02)])[0]
            for pair in ([a, b], [b, a])
        )
        assert other.verdict == opposite.get(one.verdict, one.verdict)
        assert other.p == pytest.approx(one.p)
        seen.add(one.verdict)
    assert seen >= {"reproduced", "contradicted", "unresolved"}


def test_a_larger_margin_only_makes_more_equivalent() -> None:
    rng = np.random.default_rng(1)
    tests = [simulated_test(rng, gain) for gain in np.linspace(-1, 1, 21).tolist()]
    rows = [
        [
            decide_all([Evidence("above", test.estimates, margin)])[0].verdict
            for margin in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
        ]
        for test in tests
    ]
    for row in rows:
        for before, after in itertools.pairwise(row):
            assert after in (before, "equivalent")
    assert any(row[0] == "reproduced" and row[-1] == "equivalent" for row in rows)


def count_wrong_tables(gains: list[float], wrong: set[str], *, paired: bool, tables: int = 200) -> float:
    rng, count = np.random.default_rng(2), 0
    for _ in range(tables):
        found = decide_all([simulated_test(rng, gain, paired=paired) for gain in gains])
        count += any(v.verdict in wrong for v in found)
    return count / tables


@pytest.mark.parametrize("paired", [True, False])
def test_a_table_of_true_nulls_rarely_has_a_wrong_verdict(paired: bool) -> None:  # noqa: FBT001
    share = count_wrong_tables([0.0] * 6, {"reproduced", "contradicted"}, paired=paired)
    assert share <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / 200)


def test_true_differences_do_not_make_others_wrong() -> None:
    rng, wrong, found = np.random.default_rng(3), 0, 0
    for _ in range(100):
        verdicts = [v.verdict for v in decide_all([simulated_test(rng, gain) for gain in [3.0] * 3 + [0.0] * 3])]
        wrong += any(v in ("reproduced", "contradicted") for v in verdicts[3:])
        found += sum(v == "reproduced" for v in verdicts[:3])
    assert wrong / 100 <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / 100)
    assert found / 300 > 0.8


def test_methods_that_differ_by_the_margin_are_rarely_called_equivalent() -> None:
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(300):
        noise = rng.normal(size=(2, 12, 1)) + rng.normal(size=(1, 1, 40)) + rng.normal(size=(2, 12, 40))
        estimate = estimate_contrast([noise[0] + 2.0, noise[1]], [1.0, -1.0], paired=True)
        wrong += decide_all([Evidence("above", (estimate,), 2.0)])[0].verdict == "equivalent"
    assert wrong / 300 <= ALPHA
