"""The file of a search, FOLDER/search.json: what is tried and what was chosen. A search resumes from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diffclone.data import Demonstrations
from diffclone.errors import InvalidFile
from diffclone.files import is_temporary, read_json, write_json
from diffclone.training.search_plan import Grid, Rates
from diffclone.training.session import describe_data

SEARCH_FILE = "search.json"


def open_search(folder: Path, demos: Demonstrations, budget: float, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the state of the search in a folder; refuse a folder with another search or a run without one."""
    identity = {"data": describe_data(demos)["fingerprint"], "budget": budget, "seeds": list(seeds)}
    path = folder / SEARCH_FILE
    if not path.exists():
        if folder.is_file() or (folder.exists() and not all(map(is_temporary, folder.iterdir()))):
            raise InvalidFile(f"{folder} exists and holds no search. Nothing was changed; choose another --out.")
        write_json(path, {"identity": identity})
    state = read_json(path)
    if state.get("identity") != identity:
        raise InvalidFile(
            f"{folder} holds another search ({state.get('identity')}, now {identity}). Nothing was changed; choose "
            "another --out."
        )
    return state


def save(folder: Path, state: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Add values to the search's file."""
    state = {**state, **values}
    write_json(folder / SEARCH_FILE, state)
    return state


def read_grid(values: Mapping[str, Any]) -> Grid:
    """Return the grid that a file contains."""
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}  # pyright: ignore[reportUnknownArgumentType]
    return Grid(**fields)


def read_rates(state: Mapping[str, Any]) -> Rates | None:
    """Return the rates that a search measured; None if it did not, or if an older version did."""
    rates: dict[str, float] = state.get("rates", {})
    return Rates(**rates) if "final_bc" in rates else None
