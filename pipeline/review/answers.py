"""The answers of a review, stored one by one: the file is whole at any time, whoever is killed."""

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pipeline.core.errors import FileError, SourceError
from pipeline.labels.corrections import VALUES, Correction, read_answers, write_answers


class Answers:
    """The corrections file of a dataset, as one person adds to it.

    It is read anew before each change, so that what others wrote meanwhile stays; calls come from several threads, and
    other processes write too.

    Args:
        file: The file, which need not be there.
        who: The person's name.
    """

    def __init__(self, file: Path, who: str) -> None:
        self.file, self.who = file, who

    def read(self) -> list[Correction]:
        """Return all answers of the file, those of others too.

        Raises:
            SourceError: The file is no table of answers.
        """
        return [answer for _, answer in read_answers(self.file)] if self.file.exists() else []

    def mine(self) -> dict[tuple[str, str], Correction]:
        """Return the person's own answers, by path and class."""
        return {(answer.path, answer.label): answer for answer in self.read() if answer.who == self.who}

    def put(self, path: str, label: str, value: str | None) -> str:
        """Store an answer in place of an earlier one of the same person about the same cell.

        Args:
            path: Name of the picture.
            label: Name of the class.
            value: A key of `VALUES`; None: the earlier answer is taken back.

        Returns:
            Who says something else about the cell, in words; empty where nobody does.

        Raises:
            SourceError: The file is no table of answers: it stays as it is.
            FileError: It cannot be locked or written.
        """  # noqa: DOC502  raised by the functions below
        with _lock(self.file):
            answers = self.read()
            kept = [answer for answer in answers if (answer.path, answer.label, answer.who) != (path, label, self.who)]
            if value is not None:
                kept.append(Correction(path, label, value, self.who, now()))
            if kept != answers:
                write_answers(self.file, kept)
        others = [answer for answer in kept if (answer.path, answer.label) == (path, label) and answer.value != value]
        said = [f"{answer.who or 'somebody'} says {answer.value}" for answer in others if value is not None]
        return f"{path} {label}: {', '.join(said)}; mend {self.file} before you run prepare" if said else ""


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Keep others, threads and processes, from changing a file; they wait until the block ends.

    The lock is on a file beside it, since each change puts a new file in the place of the old one.

    Raises:
        FileError: The lock cannot be had, as on a disk without locks.
    """
    path = file.with_name(f".{file.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = open(path, "ab")
    except OSError as error:
        raise FileError(f"{path}: cannot be made ({error.strerror or error}); answers are stored beside it") from error
    with held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError as error:
            remedy = "keep the project on a disk that knows locks"
            raise FileError(f"{path}: cannot be locked ({error.strerror or error}); {remedy}") from error
        yield


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def merge_answers(file: Path, new: Iterable[Correction]) -> dict[str, int]:
    """Add answers to a file of corrections: all, or none where one differs from what somebody else says.

    Args:
        file: The file, which need not be there.
        new: The answers, of known images and classes. One of the same person about the same cell replaces another, but
            for one that was given later.

    Returns:
        How many were `added`, `replaced`, were there `before`, and are `older` than another answer, which stays.

    Raises:
        SourceError: The file is no table of answers, or answers differ; nothing is written then.
        FileError: It cannot be locked or written.
    """  # noqa: DOC502  raised by the functions below too
    with _lock(file):
        kept = [answer for _, answer in read_answers(file)] if file.exists() else []
        places = {(answer.path, answer.label, answer.who): place for place, answer in enumerate(kept)}
        counts = {"added": 0, "replaced": 0, "before": 0, "older": 0}
        for answer in new:
            place = places.setdefault((answer.path, answer.label, answer.who), len(kept))
            if place == len(kept):
                kept.append(answer)
                counts["added"] += 1
            elif kept[place].value == answer.value:
                counts["before"] += 1
            elif _is_later(kept[place].when, answer.when):
                counts["older"] += 1
            else:
                kept[place] = answer
                counts["replaced"] += 1
        first: dict[tuple[str, str], Correction] = {}
        for answer in kept:
            other = first.setdefault((answer.path, answer.label), answer)
            if other.value != answer.value:
                both = f"{answer.who or 'somebody'} says {answer.value}, {other.who or 'somebody'} {other.value}"
                remedy = "nothing was added: agree on one, and delete the other"
                raise SourceError(f"{answer.path!r} {answer.label!r}: {both}; {remedy}")
        write_answers(file, kept)
        return counts


def _is_later(when: str, other: str) -> bool:
    """Return whether a time is after another; not where one of them is no time. Without a zone it is in UTC."""
    try:
        times = [datetime.fromisoformat(text.strip()) for text in (when, other)]
    except ValueError:
        return False
    one, two = (time if time.tzinfo else time.replace(tzinfo=UTC) for time in times)
    return one > two


def is_value(value: object) -> bool:
    """Return whether something is a value of an answer, or None."""
    return value is None or (isinstance(value, str) and value in VALUES)
