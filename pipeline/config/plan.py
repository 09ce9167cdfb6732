"""Plan training runs and searches: what params.yaml asks for, with what a method's class declares."""

from typing import Any

from pydantic import ValidationError

from pipeline.config import rules
from pipeline.config.params import Params
from pipeline.core.errors import ConfigError
from pipeline.core.strict import explain, merge
from pipeline.core.text import prefixed
from pipeline.methods.shared import base
from pipeline.training.settings import SettingsSearch


def load_method(name: str) -> type[base.Method]:
    """Import a method.

    Args:
        name: Name of the method.

    Returns:
        Its class.

    Raises:
        ConfigError: There is no such method, or its file cannot be imported.
    """
    try:
        return base.load(name)
    except ConfigError:
        raise
    except Exception as error:  # whatever a file that somebody is writing raises
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"pipeline/methods/{name}.py: cannot be imported ({reason})") from error


def plan_run(params: Params, stage: str, dataset: str, method: str, variant: str | None) -> rules.PlannedRun:
    """Return a training run as the rules take it.

    Args:
        params: The checked parameters.
        stage: A training stage.
        dataset: Name of a dataset.
        method: Name of a method.
        variant: Key of a variant, or None for the grid's run.

    Returns:
        The run.

    Raises:
        ConfigError: Its settings are not valid, or there is no such method.
    """
    settings, _ = params.run(stage, dataset, method, variant)
    try:
        kind = load_method(method)
    except ConfigError as error:
        raise ConfigError(prefixed(rules.key_of(stage, variant), str(error))) from error
    declared = (kind.views, kind.needs, kind.labels, kind.closed_form)
    return rules.PlannedRun(params, stage, dataset, method, variant, settings, *declared)


def check_method(name: str, block: dict[str, Any], key: str) -> list[str]:
    """Return one line for each setting of a method that its schema refuses.

    Args:
        name: Name of the method.
        block: Its settings.
        key: Their dotted path, for messages.
    """
    try:
        load_method(name).Settings.model_validate(block)
    except ValidationError as error:
        return explain(error, key).splitlines()
    return []


def plan_search(params: Params, dataset: str) -> list[rules.Searched]:
    """Return the methods of a search as the rules take them, those that can be imported.

    Args:
        params: The checked parameters.
        dataset: Name of a dataset.
    """
    planned = []
    for name in params.settings("search", dataset).methods:
        try:
            kind = load_method(name)
        except ConfigError:  # `check_search` names it
            continue
        key = f"search.{dataset}.methods.{name}"
        planned.append(rules.Searched(name, key, kind.views, kind.needs, kind.labels, kind.closed_form))
    return planned


def check_search(params: Params, dataset: str) -> list[str]:
    """Return what keeps the settings of methods from being searched, whatever the data, a line each.

    Args:
        params: The checked parameters, with the files of the methods.
        dataset: Name of a dataset.
    """
    search: SettingsSearch = params.settings("search", dataset)
    problems, planned = rules.search(params, dataset), {each.method: each for each in plan_search(params, dataset)}
    for name, changes in search.methods.items():
        key = f"search.{dataset}.methods.{name}"
        try:
            load_method(name)
            own = params.method(name, dataset)
        except ConfigError as error:
            problems.append(prefixed(key, str(error)))
            continue
        problems += rules.searched_method(params, dataset, planned[name])
        for number, change in enumerate(changes):
            problems += check_method(name, merge(own, change), f"{key}.{number}")
    return problems
