"""Streaming the lists of a large JSON file, an entry at a time, so that memory does not grow with the file."""

import json
from collections.abc import Iterator
from typing import Any, TextIO

LONGEST = 1 << 20  # characters; a text that is longer than this is taken for damage


def entries(stream: TextIO, chunk: int = 1 << 22) -> Iterator[tuple[str, Any]]:
    """Stream the lists of a JSON file that holds one object, an entry at a time; other values are passed over.

    Args:
        stream: The text.
        chunk: Characters to read at a time.

    Yields:
        The key of a list, and one of its entries.

    Raises:
        ValueError: it is no JSON, or no object; the message says at which character.
    """
    decode = json.JSONDecoder().raw_decode
    text, at, before, ended = "", 0, 0, False  # what is at hand, how far it is read, and what went before it

    def more() -> None:
        nonlocal text, at, before, ended
        fresh = stream.read(chunk)
        text, at, before, ended = text[at:] + fresh, 0, before + at, not fresh

    def following() -> str:
        """Return the next character that is no blank; "" at the end."""
        nonlocal at
        while True:
            while at < len(text) and text[at] in " \t\r\n":
                at += 1
            if at < len(text) or ended:
                return text[at : at + 1]
            more()

    def take(mark: str) -> None:
        """Go past a mark.

        Raises:
            ValueError: it is not what follows.
        """
        nonlocal at
        if (found := following()) != mark:
            raise ValueError(f"{found or 'its end'!r} at character {before + at}, expected {mark or 'its end'!r}")
        at += 1

    def value() -> Any:
        """Return what follows, and go past it.

        Raises:
            ValueError: it is no value.
        """
        nonlocal at
        following()
        while True:
            try:
                result, end = decode(text, at)
            except json.JSONDecodeError as error:
                if ended or error.pos < len(text) - LONGEST:  # else its end may not be at hand
                    raise ValueError(f"{error.msg} at character {before + error.pos}") from error
            except RecursionError as error:
                raise ValueError(f"lists in lists too deep to be read, at character {before + at}") from error
            else:
                if end + 2 < len(text) or ended:  # else a number may go on, as 1 before e+5
                    at = end
                    return result
            more()

    take("{")
    inside = following() != "}"
    while inside:
        key = value()
        take(":")
        if following() == "[":
            take("[")
            listed = following() != "]"
            while listed:
                yield key, value()
                if listed := following() != "]":
                    take(",")
            take("]")
        else:
            value()
        if inside := following() != "}":
            take(",")
    take("}")
    take("")
