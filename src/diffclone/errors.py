"""Errors that a user can fix. Each message says what was found, what was expected, and how to fix it."""

import importlib.metadata
import json
from typing import Any
from urllib.parse import unquote, urlsplit


class DiffcloneError(Exception):
    """The base class of all errors that the command line prints as one line instead of a traceback.

    A message may quote a damaged file: characters that a terminal would act on are written as escapes.
    """

    def __init__(self, *arguments: Any, **keywords: Any):
        super().__init__(*(escape(a) if isinstance(a, str) else a for a in arguments), **keywords)


def escape(text: str) -> str:
    """Return text on one line, with escapes instead of characters that cannot be printed."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class DiffcloneWarning(UserWarning):
    """A problem that does not stop the program. The command line prints it as one line."""


class InvalidData(DiffcloneError, ValueError):
    """Demonstrations that cannot be used for training as they are."""


class InvalidSettings(DiffcloneError, ValueError):
    """Settings that contradict each other or the data."""


class UnknownName(DiffcloneError, KeyError):
    """A name that is not registered."""

    __str__ = Exception.__str__  # a KeyError would show its message in quotes


class UnknownMember(DiffcloneError, IndexError):
    """A member index that a policy does not have."""


class NameTaken(DiffcloneError, ValueError):
    """A name that is registered already."""


class InvalidPlugin(DiffcloneError, ImportError):
    """An entry of a registry that comes from another package and cannot be used."""


class InvalidFile(DiffcloneError, ValueError):
    """A file that is missing, damaged, exists already, or belongs to something else."""


class MissingPackage(DiffcloneError, ImportError):
    """An optional package that is needed and not installed."""


class CannotRender(DiffcloneError, RuntimeError):
    """A machine without the libraries that rendering needs."""


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra, for a clone of the repository or from an index."""
    try:
        origin: Any = json.loads(importlib.metadata.distribution("diffclone").read_text("direct_url.json") or "{}")
        clone = unquote(urlsplit(origin["url"]).path) if origin["dir_info"]["editable"] else None
    except (importlib.metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        clone = None
    return f"pip install 'diffclone[{extra}]'" if clone is None else f"pip install -e '{clone}[{extra}]'"
