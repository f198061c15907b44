"""Write demonstrations as a small file for the package, with the bytes of numbers in planes.

python -m scripts.bundle mine.npz src/diffclone/assets/mine.npz [--half]

--half rounds to half precision; the metadata says so.
"""

import io
import json
import sys
from pathlib import Path

import numpy as np

from diffclone.data import Demonstrations
from diffclone.data.formats.npz import split_planes
from diffclone.files import refuse_existing, write_atomically


def bundle(demos: Demonstrations, path: Path, *, half: bool = False) -> None:
    """Write a new file that `Demonstrations.load` reads; without `half` it has the same fingerprint."""
    refuse_existing(path)
    meta = {**demos.meta, "precision": "half"} if half else dict(demos.meta)
    obs, act = (split_planes(values.astype(np.float16) if half else values) for values in (demos.obs, demos.act))
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, obs_planes=obs, act_planes=act, episode_ends=demos.episode_ends, meta=np.array(json.dumps(meta))
    )
    write_atomically(path, buffer.getvalue())


if __name__ == "__main__":
    source, target, *flags = sys.argv[1:]
    bundle(Demonstrations.load(source), Path(target), half="--half" in flags)
