"""YAML 1.2 that people write: read as DVC reads it, and refused where it could harm whoever looks at it.

ruamel.yaml, because PyYAML would read ``1e-5`` as text and ``no`` as False.
"""

import re
from typing import Any

from ruamel.yaml import YAML, YAMLError

from pipeline.core.errors import ConfigError
from pipeline.core.text import ODD

MOST = 1_000_000
"""Values that a file may hold once its aliases are written out: a hundred bytes can stand for billions."""


def parse_yaml(text: str, name: str, *, fast: bool = False) -> Any:
    """Return the content of a YAML text as plain mappings, lists and values.

    Args:
        text: The text.
        name: How messages call it.
        fast: Whether libyaml parses it: six times faster, for what DVC wrote; its messages name no line's content.

    Returns:
        Its content, which holds no control characters and, with its aliases written out, at most `MOST` values.

    Raises:
        ConfigError: It is not YAML 1.2, holds other tags than those of plain values, or is none of the above.
    """
    if mark := re.search(r"^(<{7} |={7}$|>{7} )", text, re.MULTILINE):
        line = text.count("\n", 0, mark.start()) + 1
        raise ConfigError(f"{name}: line {line}: a mark of an unresolved merge ({mark[1].strip()}); settle it with Git")
    try:
        content = YAML(typ="safe", pure=not fast).load(text)
        _count_values(content, name, {})
        return content
    except RecursionError as error:
        raise ConfigError(f"{name}: nested too deeply, or in itself") from error
    except ConfigError:
        raise
    except (YAMLError, ValueError) as error:  # the latter of a number of thousands of digits
        raise ConfigError(f"{name}: not YAML 1.2: {' '.join(str(error).split())}") from error


def _count_values(node: Any, where: str, known: dict[int, int]) -> int:
    """Return how many values a node stands for once its aliases are written out.

    Raises:
        ConfigError: They are more than `MOST`, or a text in it has characters that would be obeyed where it is shown.
    """
    if isinstance(node, str) and (odd := ODD.search(node)):
        raise ConfigError(f"{where}: holds the control character U+{ord(odd[0]):04X}")
    if not isinstance(node, dict | list | set):
        return 1
    if id(node) not in known:
        parts = node.items() if isinstance(node, dict) else enumerate(node)
        count = 1
        for key, value in parts:
            _count_values(key, where, known)
            count += _count_values(value, f"{where}.{key}", known)
        if count > MOST:
            raise ConfigError(f"{where}: stands for more than {MOST:,} values once its aliases are written out")
        known[id(node)] = count
    return known[id(node)]
