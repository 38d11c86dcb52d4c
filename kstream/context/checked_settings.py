"""The check of all settings of a context, before anything of it is made."""

from __future__ import annotations

from collections.abc import Mapping

from kstream import conf
from kstream.scheduler.executor_allocation_policy import allocation_policy


def check_settings(values: Mapping[str, str]) -> list[str]:
    """Check each setting of streaming (`kstream.conf.check_settings`), and those that must fit each other.

    Args:
        values: all settings of an application, also those of Spark.

    Returns:
        Warnings.

    Raises:
        ConfigurationError: a setting cannot be read, or cannot work with the others.
    """
    warnings = conf.check_settings(values)
    allocation_policy(conf.Settings(values))
    return warnings
