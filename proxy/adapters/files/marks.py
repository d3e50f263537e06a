"""By what a change of a file is known without reading it."""

from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple


class Mark(NamedTuple):
    """A file at one moment. Two marks are equal exactly where nothing wrote, replaced or unlocked it."""

    device: int
    inode: int
    size: int
    mode: int
    modified: int
    changed: int
    """Both in nanoseconds since 1970. A copy may keep the first, never the second (not so on Windows)."""

    def is_same_file(self, other: "Mark") -> bool:
        """Whether both are of one file, whatever became of its content."""
        return (self.device, self.inode) == (other.device, other.inode)


def mark(path: Path) -> Mark | None:
    """The mark of a file, links followed; None where there is none that can be looked at."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: no file system takes such a name
        return None
    if not S_ISREG(found.st_mode):
        return None
    return Mark(
        found.st_dev, found.st_ino, found.st_size, found.st_mode, found.st_mtime_ns, found.st_ctime_ns
    )
