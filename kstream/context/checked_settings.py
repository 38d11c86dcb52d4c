"""The checks of all settings of a context and of its batch interval, before anything of it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kstream.batch_time import Duration, Seconds
from kstream.conf import Settings
from kstream.context.settings_table import settings_table
from kstream.errors import ConfigurationError
from kstream.public_call import refused
from kstream.scheduler.executor_allocation_policy import allocation_policy


def check_settings(values: Mapping[str, str]) -> list[str]:
    """Check each setting of streaming (`SettingsTable.check`), and those that must fit each other.

    Args:
        values: all settings of an application, also those of Spark.

    Returns:
        Warnings.

    Raises:
        ConfigurationError: a setting cannot be read, or cannot work with the others.
    """
    warnings = settings_table().check(values)
    allocation_policy(Settings(values))
    return warnings


def check_batch_duration(given: float | Duration | None, jssc: Any) -> Duration:
    """Return the batch interval of a new context.

    Raises:
        ConfigurationError: `jssc` is given, or the interval is missing or not above zero.
        TypeError: the interval is neither a number nor a Duration.
    """
    if jssc is not None:
        raise ConfigurationError("jssc must be None: this context does not wrap one of the JVM", key="jssc", value=jssc)
    if given is None:
        raise ConfigurationError("batchDuration is missing: give seconds, or a Duration", key="batchDuration", value=None)
    try:
        duration = given if isinstance(given, Duration) else Seconds(given)
    except TypeError as e:
        raise refused(TypeError(f"batchDuration: {e}")) from None
    if duration.milliseconds <= 0:
        raise ConfigurationError(f"batchDuration must be above zero, it is {duration}", key="batchDuration", value=duration)
    return duration
