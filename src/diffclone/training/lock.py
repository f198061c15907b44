"""A lock on a folder, so that two trainings do not write to it at the same time."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from diffclone.errors import InvalidFile

if sys.platform != "win32":
    import fcntl

LOCK = "run.lock"
HELD: ContextVar[frozenset[Path]] = ContextVar("folders that the calling code has locked", default=frozenset())


@contextmanager
def lock_folder(folder: Path) -> Generator[None, None, None]:
    """Lock a run's folder for this process. The lock ends with the block, or with the process if it is killed.

    Code in the block may lock the folder again: a search locks it, and so does the training of what it chose.
    """
    if sys.platform == "win32" or folder.resolve() in HELD.get():  # Windows has no flock
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise InvalidFile(
                f"process {file.read().strip() or '?'} is training in {folder}. Wait for it, or choose another --out."
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        token = HELD.set(HELD.get() | {folder.resolve()})
        try:
            yield
        finally:
            HELD.reset(token)
