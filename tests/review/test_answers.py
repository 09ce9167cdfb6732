"""The file of answers, which several processes add to."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from pipeline.core.errors import FileError
from pipeline.labels.corrections import Correction
from pipeline.review.answers import Answers, merge_answers

EACH = 30


def put_each(start: Barrier, file: Path, who: str) -> None:
    """As a server does."""
    start.wait()
    for number in range(EACH):
        Answers(file, who).put(f"{number}.jpg", "cat", "present")


def merge_each(start: Barrier, file: Path, who: str) -> None:
    """As imports do."""
    start.wait()
    for number in range(EACH):
        merge_answers(file, [Correction(f"{number}.jpg", "cat", "present", who, "now")])


@pytest.mark.parametrize(
    "ways", [(put_each, put_each), (put_each, merge_each), (merge_each, merge_each)], ids=["serve", "both", "import"]
)
def test_processes_that_write_at_once_lose_no_answer(
    ways: tuple[Callable[[Barrier, Path, str], None], ...], tmp_path: Path
):
    file = tmp_path / "corrections" / "pets.csv"
    fresh, names = multiprocessing.get_context("spawn"), ("Ann", "Bob")
    start = fresh.Barrier(2)
    processes = [fresh.Process(target=way, args=(start, file, who)) for way, who in zip(ways, names, strict=True)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    found = {(answer.path, answer.who) for answer in Answers(file, "").read()}
    assert found == {(f"{number}.jpg", who) for number in range(EACH) for who in names}


def test_a_folder_that_cannot_hold_the_lock_is_named(tmp_path: Path):
    (tmp_path / "corrections").write_text("no folder")
    with pytest.raises(FileError, match=r"\.pets\.csv\.lock: cannot be made"):
        Answers(tmp_path / "corrections" / "pets.csv", "Ann").put("1.jpg", "cat", "present")
