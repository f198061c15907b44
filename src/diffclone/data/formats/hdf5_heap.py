"""Check the heaps of HDF5 files, in which texts of variable length are stored, before the library reads them.

A heap ("global heap collection") is a header and objects, one after the other:

    header    "GCOL"   version 1   3 bytes     size of the heap
    object    index, 2 bytes   6 bytes   size of the content      then the content, if the index is not 0

Index 0 is free space, and its size includes the object's header. The HDF5 library moves on by the size, so it never
stops at a free space of size 0, or at a size that leads back.
"""

from functools import lru_cache
from io import BufferedReader
from pathlib import Path

from diffclone.errors import InvalidData

SIGNATURE = b"\x89HDF\r\n\x1a\n"
HEAP = b"GCOL\x01"
BLOCK = 2**20
"""Bytes that are searched at once."""
LAST_SUPERBLOCK = 2**40
"""The superblock is at 0, 512, 1024, 2048, … up to the end of the file."""


def check_heaps(path: Path) -> None:
    """Refuse a file in which the library would read a heap forever."""
    status = path.stat()
    _check(path, status.st_size, status.st_mtime_ns)


@lru_cache(64)
def _check(path: Path, size: int, changed: int) -> None:
    """Check a file once as long as it does not change."""
    with path.open("rb") as file:
        length = _bytes_of_a_length(file, size)
        left = size // 8 + 1  # objects that heaps can have without overlapping
        for start in _find_heaps(file, size) if length else ():
            left -= _count_objects(file, start, size, length, left, path)


def _bytes_of_a_length(file: BufferedReader, size: int) -> int:
    """Return how many bytes a size has in this file; 0 if it is not HDF5."""
    start = 0
    while start < min(size, LAST_SUPERBLOCK):
        file.seek(start)
        head = file.read(16)
        if head.startswith(SIGNATURE) and len(head) == 16:
            return head[14] if head[8] < 2 else head[10]
        start = 2 * start or 512
    return 0


def _find_heaps(file: BufferedReader, size: int) -> list[int]:
    """Return the places of what may be heaps."""
    found: list[int] = []
    for start in range(0, size, BLOCK):
        file.seek(start)
        block = file.read(BLOCK + len(HEAP) - 1)
        place = block.find(HEAP)
        while place >= 0:
            found.append(start + place)
            place = block.find(HEAP, place + 1)
    return found


def _count_objects(file: BufferedReader, start: int, size: int, length: int, most: int, path: Path) -> int:
    """Return the number of objects of a heap; refuse a heap in which the library does not move on."""
    header = (8 + length + 7) // 8 * 8  # of the heap and of an object
    file.seek(start + 8)
    end = int.from_bytes(file.read(length), "little")
    if not header <= end <= size - start:  # no heap, or one that the library refuses
        return 0
    place, count = header, 0
    while place + header <= end:
        file.seek(start + place)
        head = file.read(8 + length)
        content = int.from_bytes(head[8:], "little")
        step = content if head[:2] == b"\0\0" else header + (content + 7) // 8 * 8
        count += 1
        if not 0 < step <= end - place or count > most:
            raise InvalidData(f"{path} is damaged: an object of the heap at byte {start} has the size {content}.")
        place += step
    return count
