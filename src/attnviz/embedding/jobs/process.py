"""The process that lays points out: ``python -m attnviz.embedding.jobs.process <folder>``.

It ends, and takes its folder with it, as soon as whoever started it is gone: then its standard
input, which nobody writes to, comes to its end.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from attnviz.embedding.jobs.folder import ProjectingFolder
from attnviz.embedding.projection import Frame, project

__all__ = ["main"]

# Seconds between frames that are written: more than a reader can follow.
_FRAMES_APART = 0.3
# Whoever waits for the layout also uses the kernel, which comes first.
_NICE = 5


def main(arguments: list[str]) -> int:
    """Lay out what a folder asks for.

    Parameters
    ----------
    arguments : list of str
        The folder.

    Returns
    -------
    int
        0 where the result is there, 1 where a file says why it is not.
    """
    folder = ProjectingFolder(Path(arguments[0]))
    threading.Thread(target=_end_with_parent, args=(folder.path,), daemon=True).start()
    with suppress(OSError, AttributeError):
        os.nice(_NICE)
    shown = -_FRAMES_APART

    def show(frame: Frame) -> None:
        nonlocal shown
        now = time.monotonic()
        if frame.final or now - shown >= _FRAMES_APART:
            folder.show(frame)
            shown = now

    try:
        project(*folder.asked(), frame=show, progress=False)
    except MemoryError:
        folder.complain("there is not enough memory to lay these points out: take fewer")
    except (ImportError, ValueError, TypeError) as error:
        folder.complain(str(error))
    except Exception as error:  # noqa: BLE001 - whatever the libraries raise, a reader is to know
        folder.complain(f"{type(error).__name__}: {error}")
    else:
        return 0
    return 1


def _end_with_parent(folder: Path) -> None:
    # Below Python's own buffers, which are locked while somebody reads.
    while os.read(0, 1):
        pass
    # What the other thread is writing meanwhile is caught by the second time.
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
