"""Where the benchmark writes, and what a new folder costs there.

An ext4 without a journal passes over the inodes of files that were removed a few minutes ago, one by one,
for each new file of the same region. Beside a folder where tests have just removed thousands of files, a new
one was seen to take ten to twenty times as long.
"""

import array
import fcntl
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

GET_FLAGS: Final = 0x80086601
SET_FLAGS: Final = 0x40086602
TOP: Final = 0x00020000
"""`chattr +T`: the folders in it are not related, and may be put into regions of their own."""
FOLDERS: Final = 500


def keep_apart(folder: Path) -> None:
    """Ask for regions of their own for the folders in this one, where the file system can be asked."""
    if sys.platform != "linux":
        return
    handle = os.open(folder, os.O_RDONLY)
    flags = array.array("L", [0])
    with suppress(OSError):
        fcntl.ioctl(handle, GET_FLAGS, flags)
        flags[0] |= TOP
        fcntl.ioctl(handle, SET_FLAGS, flags)
    os.close(handle)


def new_folder_us(folder: Path) -> float:
    """CPU microseconds of a new folder, below one that is made for this."""
    place = folder / f"calibration-{time.monotonic_ns()}"
    place.mkdir()
    started = time.process_time()
    for number in range(FOLDERS):
        (place / str(number)).mkdir()
    return (time.process_time() - started) / FOLDERS * 1e6
