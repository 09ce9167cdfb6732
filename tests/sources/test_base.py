from pathlib import Path

import pytest

from pipeline.core.errors import ConfigError
from pipeline.sources import base, digits

DIGITS = {"source": "digits", "train": 20, "val": 20, "test": 20, "size": 48, "seed": 0}


def test_every_file_but_this_one_is_a_source():
    folder = Path(base.__file__).parent
    assert set(base.names()) == {file.stem for file in folder.glob("*.py")} - {"__init__", "base"}


def test_a_source_is_found_and_its_settings_are_checked():
    source, settings = base.load(DIGITS, "prepare.mine")
    assert source is digits and settings == digits.Settings.model_validate(DIGITS)


@pytest.mark.parametrize("name", ["moon", "base", "__init__", None, ["digits"], "../digits"])
def test_a_name_that_is_no_source_is_refused(name):
    with pytest.raises(
        ConfigError, match=r"prepare\.mine\.source: no file pipeline/sources/.*; there are .*digits, .*nus"
    ):
        base.load(DIGITS | {"source": name}, "prepare.mine")


def test_settings_that_do_not_suit_are_named():
    with pytest.raises(ConfigError, match=r"prepare\.mine\.size: .*\n?prepare\.mine\.more"):
        base.load(DIGITS | {"size": "48", "more": 1}, "prepare.mine")
