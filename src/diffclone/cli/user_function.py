"""Functions of the user's own code, named on the command line: `module:function` or `path/to/file.py:function`."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from diffclone.errors import DiffcloneError, InvalidSettings
from diffclone.tasks.playing import describe_error


def load_function(source: str) -> Callable[..., Any]:
    """Import the function. The current folder is searched first, as by `python -m`."""
    place, colon, name = source.rpartition(":")
    if not colon or not place or not name:
        raise InvalidSettings(
            f"{source!r} names no function. Give MODULE:FUNCTION, FILE.py:FUNCTION, or the folder of a trained policy."
        )
    found: Any = _import_module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            names = vars(found) if isinstance(found, ModuleType) else dir(found)
            known = [key for key in names if not key.startswith("_") and callable(getattr(found, key, None))]
            raise InvalidSettings(f"{place} has no {name}; it has {', '.join(known[:12]) or 'no functions'}.")
        found = getattr(found, part)
    if isinstance(found, type) or not callable(found):
        kind = "a class" if isinstance(found, type) else type(found).__name__
        raise InvalidSettings(f"{source} is {kind}; a function or a callable object is needed.")
    return found


def _import_module(place: str) -> ModuleType:
    path = Path(place)
    is_file = place.endswith(".py") or os.sep in place
    if is_file and not path.is_file():
        raise InvalidSettings(f"no such file: {place}.")
    folder = str(path.resolve().parent if is_file else Path.cwd())
    if folder not in sys.path:  # so that a file may import its neighbours
        sys.path.insert(0, folder)
    try:
        return _import_file(path) if is_file else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name == place.partition(".")[0] or error.name == place:
            raise InvalidSettings(f"no module {place!r} in {folder} or among the installed packages.") from None
        raise InvalidSettings(f"{place} cannot be imported: {describe_error(error)}.") from None
    except DiffcloneError:
        raise
    except (Exception, SystemExit) as error:  # argparse exits if a file parses arguments when it is imported
        raise InvalidSettings(f"{place} cannot be imported: {describe_error(error)}.") from error


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidSettings(f"{path} is not a Python file (.py).")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # classes in the file can then be pickled
    spec.loader.exec_module(module)
    return module
