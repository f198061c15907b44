"""The file of a search, FOLDER/search.json: what is tried and what was chosen. A search resumes from it."""

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diffclone.data import Demonstrations
from diffclone.errors import InvalidFile
from diffclone.files import is_temporary, read_json, write_json
from diffclone.training.lock import LOCK, lock_folder
from diffclone.training.members import list_seeds
from diffclone.training.search_plan import Grid, Rates
from diffclone.training.session import describe_data

SEARCH_FILE = "search.json"
CHECKSUM = "sha256"


@contextmanager
def open_search(
    folder: Path, demos: Demonstrations, budget: float, seeds: int | Sequence[int]
) -> Generator[dict[str, Any], None, None]:
    """Lock a folder and yield the state of its search; refuse a folder with another search or a run without one."""
    identity = {"data": describe_data(demos)["fingerprint"], "budget": budget, "seeds": list_seeds(seeds)}
    check_folder(folder, identity)
    with lock_folder(folder):
        check_folder(folder, identity)  # another process may have used the folder before it was locked
        if not (folder / SEARCH_FILE).exists():
            save(folder, {"identity": identity})
        yield read_state(folder)


def check_folder(folder: Path, identity: Mapping[str, Any]) -> None:
    """Refuse a folder that contains another search or anything else."""
    if (folder / SEARCH_FILE).exists():
        state = read_state(folder)
        found = state.get("identity")
        if found != identity:
            raise InvalidFile(
                f"{folder} holds another search ({found}, now {identity}). Nothing was changed; choose another --out."
            )
        # A search with a grid makes its run when it has chosen. Earlier versions let another training use the folder.
        if "grid" in state and "chosen" not in state and (folder / "run.json").exists():
            raise InvalidFile(
                f"{folder} holds an unfinished search and the run of another training, so the search could not save "
                "its choice. Nothing was changed; choose another --out."
            )
    elif folder.is_file() or (folder.exists() and not all(map(may_be_there, folder.iterdir()))):
        raise InvalidFile(f"{folder} exists and holds no search. Nothing was changed; choose another --out.")


def may_be_there(path: Path) -> bool:
    """Return whether a file may be in the folder before a search begins."""
    return path.name == LOCK or is_temporary(path)


def save(folder: Path, state: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Add values to the search's file, which also gets a checksum."""
    state = {name: value for name, value in {**state, **values}.items() if name != CHECKSUM}
    state = {**state, CHECKSUM: checksum(state)}
    write_json(folder / SEARCH_FILE, state)
    return state


def read_state(folder: Path) -> dict[str, Any]:
    """Return the content of the search's file. A damaged file is refused; those of older versions have no checksum."""
    state: Any = read_json(folder / SEARCH_FILE)
    if not isinstance(state, dict) or state.get(CHECKSUM, checksum(state)) != checksum(state):  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        raise InvalidFile(
            f"{folder / SEARCH_FILE} is damaged. Remove {folder} to search again, or choose another --out."
        )
    return state  # pyright: ignore[reportUnknownVariableType]


def checksum(state: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all values but the checksum."""
    others = {name: value for name, value in state.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


def read_grid(values: Mapping[str, Any]) -> Grid:
    """Return the grid that a file contains."""
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}  # pyright: ignore[reportUnknownArgumentType]
    return Grid(**fields)


def read_rates(state: Mapping[str, Any]) -> Rates | None:
    """Return the rates that a search measured; None if it did not, or if an older version did."""
    rates: dict[str, Any] = state.get("rates", {})
    return Rates(**rates) if "stack" in rates else None
