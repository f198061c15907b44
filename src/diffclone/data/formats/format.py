"""What a format of demonstrations consists of."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import FileContents


@final
@dataclass(frozen=True)
class Format:
    """A format that demonstrations are read from, and perhaps written to.

    Its registered name is also a prefix: `NAME:PATH` reads or writes PATH in this format, whatever PATH looks like.
    """

    label: str
    """What error messages call a file or folder of this format, such as "LeRobot dataset"."""
    recognise: Callable[[Path], bool]
    """Return whether the content of an existing file or folder has this format. An exception means no."""
    read: Callable[..., Demonstrations]
    """Read a file or folder: `read(path, options)` if the format lists `options`, else `read(path)`. Any exception is
    reported to the user as one line."""
    options: tuple[str, ...] = ()
    """The fields of `ReadOptions` that `read` uses. Others are refused, except `action_bounds`, which needs no work by
    the format."""
    open: Callable[..., AbstractContextManager[FileContents]] | None = None
    """Find the arrays of a file or folder without reading them, `open(path, options)`, so that data larger than memory
    can be read in blocks. None if `read` reads all at once; otherwise `read` is `read_whole(open)`."""
    write: Callable[[Demonstrations, str], None] | None = None
    """Write a new file or folder. It gets the name that the user gave, without the prefix. None if read only."""
    suffixes: tuple[str, ...] = ()
    """Endings of names. They select the format to write, and the one to read where no content is recognised."""
    files: tuple[str, ...] = ()
    """Endings of the files in a folder of this format, if it is recognised by them. Reading warns if the folder has
    other data as well."""
    packages: tuple[str, ...] = ()
    """Packages that `write` needs and that are not installed with every copy of diffclone."""
    place: Callable[[str], Path] = Path
    """Return the path that `write` makes for a name. Raise `InvalidData` for a name that `write` would refuse."""
    find: Callable[[str], Path] = Path
    """Return the path for the NAME in `prefix:NAME`."""
