"""Mistakes a user can mend. Each message says what was found, what was expected, and the way out."""


class DiffcloneError(Exception):
    """Anything the command line answers with one line instead of a traceback."""


class InvalidData(DiffcloneError, ValueError):
    """Demonstrations that cannot be learned from as they are."""


class InvalidSettings(DiffcloneError, ValueError):
    """Settings that contradict each other or the data."""


class UnknownName(DiffcloneError, KeyError):
    """A task, method, guide or preset that is not registered."""

    __str__ = Exception.__str__  # a KeyError would show its message in quotes


class InvalidFile(DiffcloneError, ValueError):
    """A saved file that is missing, damaged, or belongs to something else."""


class MissingPackage(DiffcloneError, ImportError):
    """An optional package that this call needs."""


class CannotRender(DiffcloneError, RuntimeError):
    """A machine without what pictures need."""
