import io
import json
import re

import pytest

from pipeline.data import json_lists


def lists(text: str, chunk: int = 1 << 22) -> list[tuple[str, object]]:
    return list(json_lists.read_entries(io.StringIO(text), chunk))


STREAM = """ {"info" : {"a": [1, {"b": "]}"}]}, "version": 12345, "none": null,
"images":[ {"id": 1, "name": "a\\"b, é\\u00e9"} ,{"id":22}\t, 333, -1.5e+3, "x" ],"empty":[ ] ,
"annotations": [[1, [2]]]}\r\n """


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 50, 10_000])
def test_entries_do_not_depend_on_where_a_read_ends(chunk):
    content = json.loads(STREAM)
    wanted = [(key, entry) for key in ("images", "empty", "annotations") for entry in content[key]]
    assert len(wanted) == 6 and lists(STREAM, chunk) == wanted
    assert lists(" {} ", chunk) == []


BROKEN = {
    "": "'its end' at character 0, expected '{'",
    "[1]": "'[' at character 0, expected '{'",
    '{"a": [1, 2}': "'}' at character 11, expected ','",
    '{"a": [1 2]}': "'2' at character 9, expected ','",
    '{"a": [1,]}': "Expecting value at character 9",
    '{"a": [1],}': "Expecting value at character 10",
    '{"a" [1]}': "'[' at character 5, expected ':'",
    '{"a": [1]': "'its end' at character 9, expected ','",
    '{"a": [{"b": 1]}': "Expecting ',' delimiter at character 14",
    '{"a": ["b': "Unterminated string starting at at character 7",
    '{"a": [1], "b": [], "a": [2]}': "key 'a' is there twice",
    '{"a": [{"b": 1}, {"b": 1, "c": 2, "b": 2}]}': "the object at character 17 has the key 'b' twice",
    '{"a": [{"b": {"c": 1, "c": 1}}]}': "the object at character 7 has the key 'c' twice",
    '{"a": {"b": 1, "b": 1}}': "the object at character 6 has the key 'b' twice",
    '{"a": [1]} {}': "'{' at character 11, expected 'its end'",
}


@pytest.mark.parametrize("chunk", [1, 5, 10_000])
@pytest.mark.parametrize("text, words", BROKEN.items(), ids=BROKEN.keys())
def test_what_is_no_json_is_told_with_its_place(text, words, chunk):
    with pytest.raises(ValueError, match=re.escape(words)):
        lists(text, chunk)


@pytest.mark.parametrize("chunk", [1 << 12, 1 << 22])
@pytest.mark.parametrize("before", ['{"a": [1, ', '{"b": {"c": 1}, "a": ', '{"images": [{}, {}], "a": '])
@pytest.mark.parametrize("deep, whole", [("[", "]"), ('{"x":', "}")])
def test_what_is_nested_too_deep_is_told_with_its_place(before, deep, whole, chunk):
    before += " " * 10_000
    at = len(before) + (deep == "[" and not before.startswith('{"a": ['))  # the first of these brackets is the list's
    with pytest.raises(ValueError, match=f"too deep to be read, at character {at}$"):
        lists(before + deep * 100_000 + "1" + whole * 100_000, chunk)


def test_damage_is_told_before_the_rest_is_read():
    class Counting(io.StringIO):
        read_so_far = 0

        def read(self, size: int | None = -1) -> str:
            text = super().read(size)
            self.read_so_far += len(text)
            return text

    stream = Counting('{"a": [' + "{}, " * 100 + "{oops}, " + "{}, " * 1_000_000)
    with pytest.raises(ValueError, match="Expecting property name .* at character 408"):
        list(json_lists.read_entries(stream, 1 << 14))
    assert stream.read_so_far < json_lists.LONGEST + (1 << 16)
