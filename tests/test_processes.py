"""Rows that several processes share."""

from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diffclone.tasks.processes import Processes


class Doubler:
    """Needs at least one row."""

    def double(self, rows: npt.NDArray[Any], values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
        return rows, 2 * values.reshape(len(rows), -1)


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [2], [4, 1, 3], [0, 3]])
def test_results_are_in_the_order_of_the_rows_and_processes_may_have_none(rows: list[int]) -> None:
    values = np.arange(3.0 * len(rows)).reshape(-1, 3)
    with closing(Processes(Doubler(), 3)) as processes:
        found, doubled = processes.call("double", np.array(rows), values)
    assert found.tolist() == rows
    assert np.array_equal(doubled, 2 * values)
