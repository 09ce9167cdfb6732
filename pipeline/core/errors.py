"""Errors whose message is meant for a person: entry points print it in one line, without a traceback."""


class SpmlError(Exception):
    """Base of the errors that a message explains; the message names the file, key, run or class."""


class ConfigError(SpmlError, ValueError):
    """params.yaml asks for something that is unknown, missing, of a wrong type or impossible; the key is named."""


class FileError(SpmlError, RuntimeError):
    """A file that a stage needs is absent, unreadable or incomplete; the message names it."""


class SourceError(SpmlError, ValueError):
    """A dataset on disk is not what its source expects; the message names the file, line, id or class."""


class TrainingError(SpmlError, RuntimeError):
    """Training cannot go on; the message names the run, the epoch and the term."""


class LandscapeError(SpmlError, RuntimeError):
    """A loss landscape cannot be computed; the message says why."""
