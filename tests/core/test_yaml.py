"""YAML that people or merges left: hostile text is one line that names the file, whatever it would do elsewhere."""

import time

import pytest

from pipeline.core.errors import ConfigError
from pipeline.core.yaml import MOST, parse_yaml


def bomb(levels: int, width: int = 9) -> str:
    """Lists of lists: the last stands for ``width ** levels`` words."""
    lines = ["a0: &a0 x"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels + 1)]
    return "\n".join(lines)


HOSTILE = {
    "aliases that stand for 9 ** 9 values": (bomb(9), "x.yaml.a7: stands for more than 1,000,000 values once"),
    "aliases in keys of mappings": (bomb(9).replace("[*a8", "[{k: *a8}"), "x.yaml.a7: stands for more than"),
    "20,000 brackets": ("x: " + "[" * 20000, "x.yaml: nested too deeply"),
    "20,000 braces": ("x: " + "{a: " * 20000, "x.yaml: nested too deeply"),
    "20,000 dashes": ("x:\n " + "- " * 20000, "x.yaml: nested too deeply"),
    "a list in itself": ("x: &a [*a]", "x.yaml: nested too deeply, or in itself"),
    "a mapping in itself": ("x: &a {b: *a}", "x.yaml: nested too deeply, or in itself"),
    "a call": ("x: !!python/object/apply:os.system [echo]", "x.yaml: not YAML 1.2: could not determine"),
    "a number of 5,000 digits": ("x: " + "9" * 5000, "x.yaml: not YAML 1.2: Exceeds the limit"),
    "NUL": ("x: \0", "x.yaml: not YAML 1.2: unacceptable character #x0000"),
    "NUL, escaped": ('x: {root: "a\\0b"}', "x.yaml.x.root: holds the control character U+0000"),
    "ANSI in a value": ('x: ["\\e[31m"]', "x.yaml.x.0: holds the control character U+001B"),
    "ANSI in a key": ('"\\e[31mred": 1', "x.yaml: holds the control character U+001B"),
    "a turn of the writing": ('x: "\\u202Egpj.exe"', "x.yaml.x: holds the control character U+202E"),
    "half a character": ('x: "\\ud800"', "x.yaml.x: holds the control character U+D800"),
    "a set with ANSI": ('x: !!set {"\\e[1m"}', "x.yaml.x.0: holds the control character U+001B"),
    "marks of a merge": ("a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> x\n", "x.yaml: line 2: a mark of an unreso"),
    "the middle of a merge": ("a: 1\n=======\nb: 2\n", "x.yaml: line 2: a mark of an unresolved merge (=======)"),
    "a key twice": ("a: 1\na: 2", "x.yaml: not YAML 1.2: while constructing a mapping"),
}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_one_line(name: str, fast: bool) -> None:
    text, message = HOSTILE[name]
    started = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "x.yaml", fast=fast)
    line = str(caught.value)
    assert line.startswith(message.partition(" #x")[0]) and len(line.splitlines()) == 1 and "\x1b" not in line
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("fast", [False, True])
def test_aliases_count_as_what_they_stand_for(fast: bool) -> None:
    lists = "\n".join(["a: &a [" + "1, " * 999 + "1]", "b: [" + ", ".join(["*a"] * 900) + "]"])  # 900 * 1001 + ...
    assert len(parse_yaml(lists, "x", fast=fast)["b"]) == 900
    with pytest.raises(ConfigError, match=f"x.b: stands for more than {MOST:,} values"):
        parse_yaml(lists.replace("*a, *a", "*a, " * 150 + "*a", 1), "x", fast=fast)


def test_plain_text_is_read_as_yaml_1_2() -> None:
    text = 'a: 1e-5\nb: no\nc: [~, 0o7, "tab\\there", "two\\nlines", é]\nd: &d {e: 1}\nf: {<<: *d, g: 2}\n# =======\n'
    expected = {"a": 1e-5, "b": "no", "c": [None, 7, "tab\there", "two\nlines", "é"], "d": {"e": 1}}
    assert parse_yaml(text, "x") == expected | {"f": {"e": 1, "g": 2}}
