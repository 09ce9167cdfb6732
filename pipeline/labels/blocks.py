"""Matrices of images and classes in blocks of rows, so that what is computed of all cells takes memory for some."""

from collections.abc import Iterator

CELLS = 1 << 18
"""Cells of a block: 2 MB of float64."""


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield the blocks of a matrix.

    Args:
        rows: Its rows.
        columns: Its columns.

    Yields:
        Slices of rows, in order, of about `CELLS` cells and at least one row each.
    """
    step = max(1, CELLS // max(columns, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
