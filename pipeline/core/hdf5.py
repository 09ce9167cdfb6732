"""The only reader and writer of HDF5 files between stages.

A file is written whole under a temporary name, sealed (`pipeline.core.seal`), and opened for reading only. The seal is
compared before the library parses a byte: on damaged bytes it can loop for ever.
"""

import errno
import io
import math
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from pipeline.core import seal
from pipeline.core.errors import FileError
from pipeline.core.files import replacing, unwritable

if TYPE_CHECKING:
    import h5py


@contextmanager
def create(path: str | Path, inputs: Iterable[str | Path] = ()) -> "Iterator[h5py.File]":
    """Yield a new HDF5 file under a temporary name; seal it and put it in place when the block ends well.

    Args:
        path: The file.
        inputs: Sealed files that it is made from.

    Yields:
        The open file.

    Raises:
        FileError: It cannot be written, as on a full disk; an earlier file there stays.
    """
    import h5py

    size = 0
    try:
        with replacing(path) as temporary:
            with open(temporary, "w+b") as file:
                sink = _Sink(file)
                try:
                    with h5py.File(sink, "w", track_order=True) as content:
                        yield content
                except Exception:
                    if sink.error is None:
                        raise
                if sink.error is not None:
                    raise sink.error
                size = file.seek(0, os.SEEK_END)
            seal.append(temporary, inputs, lies_at=path)
    except OSError as error:
        raise FileError(unwritable(path, size, error)) from error


class _Sink(io.RawIOBase):
    """The file below an HDF5 file in the making: a write that fails is kept for later, since it would kill the library.

    Args:
        file: An empty file, open for reading and writing.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Return the position after a move, as `io.RawIOBase`."""
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        """Return how many bytes were read back; after a failed write, of anything."""
        return self._file.readinto(buffer) if self.error is None else len(buffer)  # pyright: ignore

    def write(self, data: Any) -> int:
        """Return how many bytes were taken; after a failed write, none is written."""
        self._attempt(lambda: self._file.write(data))
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Return the new size; after a failed write, the file stays as it is."""
        self._attempt(lambda: self._file.truncate(size))
        return size or 0

    def flush(self) -> None:
        """Hand what was written to the system unless a write has failed."""
        self._attempt(self._file.flush)

    def _attempt(self, write: Callable[[], Any]) -> None:
        if self.error is None:
            try:
                write()
            except OSError as error:
                self.error = error


@contextmanager
def read(path: str | Path, *, anywhere: bool = False) -> "Iterator[h5py.File]":
    """Yield an HDF5 file opened for reading, once it was compared with its seal.

    Args:
        path: The file.
        anywhere: Whether it may be another output than the one that belongs there: to be looked at, not gone on from.

    Yields:
        The open file.

    Raises:
        FileError: The file is absent, damaged, another stage's, or made from other inputs than those that lie there.
    """
    seal.verify(path) if anywhere else seal.check(path)
    with _open(path) as file:
        yield file


@contextmanager
def _open(path: str | Path) -> "Iterator[h5py.File]":
    """Yield an HDF5 file opened for reading, without a lock: it never changes, and not every disk knows locks.

    Raises:
        FileError: It is no HDF5.
    """
    import h5py

    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        raise FileError(f"{path}: not a readable HDF5 file ({error})") from error
    with file:
        _refuse_links(file, path)
        yield file


def _refuse_links(file: "h5py.File", path: str | Path) -> None:
    """Refuse what is no array of the file itself: links, data kept in other files, groups, which may hold themselves.

    Raises:
        FileError: There is such a thing.
    """
    import h5py

    for name in file:
        item: Any = file[name] if file.get(name, getlink=True, getclass=True) is h5py.HardLink else None
        if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
            raise FileError(f"{path}: `{name}` is no array of this file; run the stage that makes it")


MAPPED = ("uint8", "float16", "float32")
"""Types of arrays that are mapped, as numpy calls them."""


def allocate(
    path: str | Path,
    name: str,
    shape: tuple[int, ...],
    dtype: str = "uint8",
    *,
    axes: str,
    units: str,
    **attributes: Any,
) -> None:
    """Make an HDF5 file with one array, to be filled in place by ``map_array`` and then sealed.

    The array lies in one piece; its place and its room on the disk are settled here, so that a writer that is killed
    leaves a sound file, and a disk that fills up kills no writer. Until it is filled the file has no seal, and no stage
    reads it.

    Args:
        path: The file.
        name: Dataset name.
        shape: Shape of the array.
        dtype: Its type, one of `MAPPED`.
        axes: What each axis is, e.g. "image, class".
        units: What a value means.
        attributes: Attributes of the file.

    Raises:
        OSError: The disk, or the user's share of it, has too little room; no file is left.
    """
    import h5py

    with replacing(path) as temporary:
        with h5py.File(temporary, "w", track_order=True) as file:
            layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            layout.set_layout(h5py.h5d.CONTIGUOUS)
            layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            layout.set_obj_track_times(False)
            space = h5py.h5s.create_simple(shape)
            kind = h5py.h5t.py_create(np.dtype(dtype))
            array = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space, layout))
            array.attrs["axes"], array.attrs["units"] = axes, units
            file.attrs.update(attributes)
        _reserve_space(temporary)


def _reserve_space(path: Path) -> None:
    """Take the disk space of a sparse file: a mapped page that finds no room later kills the process (SIGBUS).

    Raises:
        OSError: There is too little.
    """
    if not hasattr(os, "posix_fallocate"):  # macOS
        return
    with open(path, "r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):  # the file system knows no such call
                raise


def map_array(path: str | Path, name: str) -> np.memmap:
    """Return an array of ``allocate``, mapped into memory to be filled; no HDF5 handle stays open.

    Args:
        path: The file, without a seal or about to get another: nobody but the stage that makes it reads it yet.
        name: Dataset name.

    Returns:
        The array.

    Raises:
        FileError: The file is absent, damaged or incomplete, or has no such array in one piece.
    """  # noqa: DOC502  raised by `_locate`
    offset, shape, dtype = _locate(path, name)
    return np.memmap(path, dtype, "r+", offset, shape)


def release(array: np.memmap) -> None:
    """Let go of the memory that a mapped file takes: its pages stay in the file, and are mapped again when touched.

    What was written needs ``flush`` all the same. Without this a process keeps what it has touched until others press.
    """
    if hasattr(mmap, "MADV_DONTNEED"):
        array.base.madvise(mmap.MADV_DONTNEED)  # pyright: ignore


class Mapped:
    """An array of ``allocate`` in a sealed file, mapped into memory, whose rows are verified when first read.

    Of the file nothing stays in memory between reads.

    Args:
        path: The file.
        name: Dataset name.

    Raises:
        FileError: The file is absent, another stage's, made from other inputs than those that lie there, or damaged in
            what describes the array; or it has no such array in one piece.
    """

    def __init__(self, path: str | Path, name: str) -> None:
        its_seal = seal.read(path)
        seal.raise_if_misplaced(path, its_seal.path, its_seal.inputs)
        self._content = np.memmap(path, np.uint8, "r", 0, (its_seal.size,))
        self._touched = seal.Touched(path, its_seal, self._content)
        described = min(its_seal.size, 1 << 16)  # what describes the array lies before and behind it
        self._touched.verify(np.array([0, its_seal.size - described]), described)
        self._offset, self.shape, self.dtype = _locate(path, name)
        self._array = self._content[self._offset :][: self.nbytes].view(self.dtype).reshape(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of some rows.

        Raises:
            FileError: They are damaged.
        """
        length = math.prod(self.shape[1:]) * self.dtype.itemsize
        self._touched.verify(self._offset + rows * length, length)
        found = np.asarray(self._array[rows])
        release(self._content)
        return found


def _locate(path: str | Path, name: str) -> tuple[int, tuple[int, ...], np.dtype]:
    """Return the offset, the shape and the type of an array of ``allocate``.

    Raises:
        FileError: The file is absent, no HDF5 or too short, or has no such array in one piece.
    """
    if not Path(path).is_file():
        raise FileError(f"{path}: no such file; run the stage that makes it")
    with _open(path) as file:
        array: Any = file.get(name)
        offset = getattr(getattr(array, "id", None), "get_offset", lambda: None)()
        if array is None or offset is None or str(array.dtype) not in MAPPED:
            raise FileError(
                f"{path}: holds no `{name}` of {', '.join(MAPPED)} in one piece; run the stage that makes it"
            )
        shape, dtype = array.shape, np.dtype(array.dtype)
    if Path(path).stat().st_size < offset + math.prod(shape) * dtype.itemsize:
        raise FileError(f"{path}: damaged (shorter than its array)")
    return offset, shape, dtype


def write_array(
    file: "h5py.File", name: str, array: Any, *, axes: str, units: str, compress: bool = False
) -> "h5py.Dataset":
    """Write one array with the names of its axes and its unit.

    Args:
        file: An open file of ``create``.
        name: Dataset name.
        array: Numeric array, or a sequence of strings.
        axes: What each axis is, e.g. "image, class".
        units: What a value means, e.g. "logit".
        compress: Whether to compress (lossless); pays for sparse integers, not for noise.

    Returns:
        The new dataset.
    """
    import h5py

    if not isinstance(array, np.ndarray):
        array = np.asarray(array)
    options: dict[str, Any] = {"compression": "gzip", "shuffle": True} if compress and array.size else {}
    if array.dtype.kind in "UO":
        options["dtype"] = h5py.string_dtype()
        array = array.astype(object)
    dataset = file.create_dataset(name, data=array, **options)
    dataset.attrs["axes"] = axes
    dataset.attrs["units"] = units
    return dataset


def read_strings(dataset: Any) -> list[str]:
    """Return a string dataset of an HDF5 file as Python strings."""
    return [str(text) for text in dataset.asstr()[()]]


def open_array(path: str | Path, shape: tuple[int, ...], dtype: str) -> np.memmap:
    """Open an array on disk that is changed in place: a run's own state, never what another stage reads.

    Args:
        path: A file of nothing but the values, in C order; where it is absent it is made, all zeros. A made one takes
            disk as values are written, no sooner.
        shape: Shape of the array, at least one value.
        dtype: Its type, as numpy calls it.

    Returns:
        The array, memory-mapped; what is written is in the file once ``flush`` has returned.

    Raises:
        FileError: The file has another size.
    """
    path, size = Path(path), math.prod(shape) * np.dtype(dtype).itemsize
    if not path.exists():
        with replacing(path) as temporary, open(temporary, "wb") as file:
            file.truncate(size)
    if path.stat().st_size != size:
        given = f"{path.stat().st_size} bytes, where {shape} of {dtype} are {size}"
        raise FileError(f"{path}: {given}; `spml scratch --clear` deletes what interrupted runs left")
    return np.memmap(path, dtype, "r+", shape=shape)
