"""Reading a file takes hardly more memory than its arrays."""

import sys

import pytest

from benchmarks.reading import FORMATS, make, measure

pytest.importorskip("h5py")
pytest.importorskip("pyarrow")
pytest.importorskip("zarr")
pytest.importorskip("minari")


ARROW = ("LeRobot", "parquet")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reading_takes_hardly_more_memory_than_the_arrays() -> None:
    found = measure(list(FORMATS), make(40))
    # At 40 MB, blocks and buffers count, those of Arrow most: tens of megabytes.
    allowed = {name: 2.9 if name in ARROW else 2.0 for name in FORMATS}
    assert not {name: round(of["ratio"], 2) for name, of in found.items() if of["ratio"] > allowed[name]}
