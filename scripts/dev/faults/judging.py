"""Checks of a run into which a fault was injected, and of the files that it leaves."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from typing import Final

from faults.drawing import READING, Fault, Phase, Seen
from faults.running import Done, Place, last_checkpoint_read

#: Calls whose errors mean that bytes or names may be lost: a run that continues without an error has promised too much.
LOSING: Final = frozenset({"write", "pwrite", "fsync", "fdatasync", "close for writing", "sendfile", "copy_file_range"})

#: What ROMIO says in place of the system's words.
_OTHER_WORDS: Final = {
    errno.EACCES: ("Access denied", "Permission denied"),
    errno.ENOSPC: ("No space", "Not enough space"),
    errno.EDQUOT: ("Quota exceeded",),
}


@dataclass(frozen=True)
class Complaint:
    """Something that does not hold: in one word, and in full."""

    word: str
    text: str


def may_be_silent(call: Seen) -> bool:
    """Return whether a run may succeed though this call failed, as nothing can be lost: then its results are compared.

    The text of a lock has its holder; where it cannot be written, no user sees it.
    """
    return call.title not in LOSING or call.thing == "lock"


def judge(place: Place, phase: Phase, fault: Fault, done: Done, before: dict[str, tuple[int, int]]) -> list[Complaint]:
    """Return complaints about a run with a fault; `before` are the files that it began with. Runs the pattern again."""
    found = [*complaints_of_end(done, fault), *_complaints_of_files(place, phase, fault, done, before)]
    if done.hung or (phase in READING and place.files() == before):
        return found
    return found + _complaints_of_next_run(place, phase, done)


def complaints_of_end(done: Done, fault: Fault) -> list[Complaint]:
    """Return complaints about how it ended, and what it printed."""
    if done.hung:
        return [Complaint("hang", done.text)]
    found = []
    if done.left:
        found.append(Complaint("left", f"processes {done.left} outlived the launcher"))
    errors = re.findall(r"^error(?:\[\w+\])?: .*$", done.text, re.MULTILINE)
    if "fault in dliosim itself" in done.text:
        found.append(Complaint("itself", done.text))
    elif "Traceback" in done.text:
        found.append(Complaint("traceback", done.text))
    elif done.status == 0 and errors:
        found.append(Complaint("status", f"0 after {errors}"))
    elif done.status == 0:
        loud = [call for call in done.hit if not may_be_silent(call)]
        if loud and not fault.passing:
            found.append(Complaint("silent", f"status 0, though {loud[0]} failed: {fault.title}"))
    elif done.status == 1 and any(call.title == "close" and call.thing == "directory" for call in done.hit):
        pass  # shutil.rmtree closes a directory once more where that has failed, and says that this cannot be
    elif fault.passing and not (fault.value == errno.EINTR and _is_of_library(errors, done)):
        found.append(Complaint("not survived", f"status {done.status} by what is no error: {done.text}"))
    elif done.status != 1 or len(errors) != 1:
        found.append(Complaint("ending", f"status {done.status}, {len(errors)} errors: {done.text}"))
    else:
        found += _complaints_of_message(errors[0], fault, done)
    return found


def _is_of_library(errors: list[str], done: Done) -> bool:
    """Return whether ROMIO or HDF5 made the call: unlike Python they do not repeat a call that a signal interrupted."""
    return any("MPI_File" in error for error in errors) or any(".hdf5" in call.path for call in done.hit)


def _complaints_of_message(message: str, fault: Fault, done: Done) -> list[Complaint]:
    """Return complaints unless the message says what failed, where, and why."""
    found = []
    words = (os.strerror(fault.value), *_OTHER_WORDS.get(fault.value, ()))
    # Where ROMIO cannot find the file system of a file, it says no more than this.
    if any(call.call == "statfs" for call in done.hit) and "MPI_File_open" in message:
        words += ("Invalid file name", "Other I/O error")
    if not any(word.lower() in message.lower() for word in words):
        found.append(Complaint("reason", f"{os.strerror(fault.value)!r} is not in: {message}"))
    paths = [call.path.removesuffix(" (deleted)").split("/") for call in done.hit]
    # Code that removes a directory names the directory in its error, not the file that is left.
    names = {name for path in paths for name in (path[-1].removesuffix(".partial"), "/".join(path[-3:-1]))}
    names |= {"/".join(path[: end + 1]) for path in paths for end in range(3, len(path))}
    if not any(name in message for name in names):
        found.append(Complaint("place", f"{'/'.join(paths[0])} is not in: {message}"))
    return found


def _complaints_of_files(
    place: Place, phase: Phase, fault: Fault, done: Done, before: dict[str, tuple[int, int]]
) -> list[Complaint]:
    """Return complaints about the files: nothing torn counts, nothing complete is gone, and status 0 means done."""
    found = []
    saved = place.checkpoints()
    torn = {name: wrong for name, (counts, wrong) in saved.items() if counts and wrong}
    if torn:
        found.append(Complaint("torn", f"{torn}"))
    if phase in READING:
        after = place.files()
        if after != before:
            changed = sorted({name for name, _ in before.items() ^ after.items()})
            found.append(Complaint("changed", f"reading changed {changed}; {done.text}"))
    newest = max(
        (int(name[-6:]) for name, (counts, _) in saved.items() if counts and name.startswith("data/")), default=0
    )
    if phase != "prepare" and newest < 2:
        found.append(Complaint("lost", f"2 checkpoints were complete, and now: {saved}"))
    if done.status or done.hung:
        return found
    if phase == "restore" and (number := last_checkpoint_read(done.seen)) != 2:
        found.append(Complaint("older", f"restored number {number}, and 2 is complete; {done.text}"))
    if phase in ("save", "save in loop") and newest < 2 + (2 if phase == "save" else 1):
        found.append(Complaint("lost", f"status 0, and the newest checkpoint is {newest}: {saved}"))
    return found


def _complaints_of_next_run(place: Place, phase: Phase, done: Done) -> list[Complaint]:
    """Return complaints about the next run, without a fault: it makes, reads and checks all, and leaves no litter."""
    saved = any(counts for counts, _ in place.checkpoints().values())
    after = place.run(place.whole(saved))
    if after.status:
        return [Complaint("after", f"the next run ends with {after.status}: {after.text}")]
    found = []
    if phase == "prepare" and done.status == 0 and not place.has_kept_data():
        found.append(Complaint("lost", f"status 0, and the next run prepares again: {after.text}"))
    litter = place.litter()
    return [*found, Complaint("litter", f"{litter}")] if litter else found
