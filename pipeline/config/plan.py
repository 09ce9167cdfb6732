"""Plan a training run: what params.yaml asks for, with what the method's class declares."""

from pipeline.config import rules
from pipeline.config.params import Params
from pipeline.core.errors import ConfigError
from pipeline.core.text import prefixed
from pipeline.methods.shared import base


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
    return rules.PlannedRun(params, stage, dataset, method, variant, settings, kind.views, kind.needs, kind.closed_form)
