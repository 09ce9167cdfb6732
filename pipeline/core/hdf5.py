"""The only reader and writer of HDF5 files between stages.

A file is written whole under a temporary name and opened for reading only. It carries ``complete = 1`` once it is
whole; readers refuse one without that mark.
"""

import errno
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.errors import FileError
from pipeline.core.files import replacing

if TYPE_CHECKING:
    import h5py


@contextmanager
def create(path: str | Path) -> "Iterator[h5py.File]":
    """Yield a new HDF5 file under a temporary name; mark it complete and put it in place when the block ends well."""
    with replacing(path) as temporary, _create_in_place(temporary) as file:
        yield file


@contextmanager
def _create_in_place(path: Path) -> "Iterator[h5py.File]":
    """Yield a new HDF5 file; mark it complete when the block ends well."""
    import h5py

    with h5py.File(path, "w", track_order=True) as file:
        yield file
        file.attrs["complete"] = 1


@contextmanager
def read(path: str | Path) -> "Iterator[h5py.File]":
    """Yield an HDF5 file opened for reading.

    Raises:
        FileError: The file is absent, not HDF5, or was not finished by its writer.
    """
    import h5py

    if not Path(path).is_file():
        raise FileError(f"{path}: no such file; run the stage that makes it")
    try:
        file = h5py.File(path, "r", locking=False)  # it never changes, and not every disk knows locks
    except OSError as error:
        raise FileError(f"{path}: not a readable HDF5 file ({error})") from error
    with file:
        if file.attrs.get("complete") != 1:
            raise FileError(f"{path}: its writer was interrupted (no 'complete' mark); run that stage again")
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


def allocate(path: str | Path, name: str, shape: tuple[int, ...], *, axes: str, units: str, **attributes: Any) -> None:
    """Make a complete HDF5 file with one array of bytes, to be filled in place by ``map_array`` before anyone reads it.

    The array lies in one piece; its place and its room on the disk are settled here, so that a writer that is killed
    leaves a sound file, and a disk that fills up kills no writer. The mark says that the form is whole, the content is
    not yet: until it is filled the file lies where no stage reads, and packing flushes it before handing it on.

    Args:
        path: The file.
        name: Dataset name.
        shape: Shape of the array of uint8.
        axes: What each axis is, e.g. "image, class".
        units: What a value means.
        attributes: Attributes of the file.

    Raises:
        OSError: The disk, or the user's share of it, has too little room; no file is left.
    """
    import h5py

    with replacing(path) as temporary:
        with _create_in_place(temporary) as file:
            layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            layout.set_layout(h5py.h5d.CONTIGUOUS)
            layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            layout.set_obj_track_times(False)
            space = h5py.h5s.create_simple(shape)
            array = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_UINT8, space, layout))
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


def map_array(path: str | Path, name: str, *, write: bool = False) -> np.memmap:
    """Return an array of ``allocate``, mapped into memory; no HDF5 handle stays open.

    Args:
        path: The file.
        name: Dataset name.
        write: Whether the array may be changed: by the stage that makes it, before it is put in place.

    Returns:
        The array of uint8.

    Raises:
        FileError: The file is absent, damaged or incomplete, or has no such array in one piece.
    """
    with read(path) as file:
        array = file.get(name)
        offset = getattr(getattr(array, "id", None), "get_offset", lambda: None)()
        if array is None or offset is None or array.dtype != np.uint8:
            raise FileError(f"{path}: holds no `{name}` of uint8 in one piece; run the stage that makes it")
        shape = array.shape
    if Path(path).stat().st_size < offset + math.prod(shape):
        raise FileError(f"{path}: damaged (shorter than its array)")
    return np.memmap(path, np.uint8, "r+" if write else "r", offset, shape)


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
