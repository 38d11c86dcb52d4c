"""nearest_names: the known names most like one that is not known, for the hints of messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

_MOST = 3
"""The largest number of names in a hint."""
_MUCH_ALIKE = 0.8
"""The least share of equal letters of two names. A hint below it would mislead."""
_OF_THE_LAST_WORD = 0.95
"""How much the likeness of the last words alone counts. The same likeness of whole names counts more."""
_BEGUN = 0.97
"""The likeness of names of which one begins like the other and ends early: `kafka.maxRate` and `kafka.maxRatePerPartition`."""
_LONG_WORD = 6
"""Letters from which on a last word alone tells what was meant: `maxRatePerPartition` does, `id` does not."""


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names most like an unknown one: usually one, several if they are equally near, none if no name is much alike.

    Case, dots and other separators do not count. A name without the words before its last dot, or with others, is like the full one.

    Args:
        name: the unknown name.
        known: the names that exist.
    """
    nearness = {other: _likeness(name, other) for other in sorted(set(known))}
    best = max(nearness.values(), default=0.0)
    return [other for other, likeness in nearness.items() if likeness == best][:_MOST] if best >= _MUCH_ALIKE else []


def did_you_mean(names: Sequence[str]) -> str:
    """Return the hint with these names: `Did you mean 'a.b' or 'c.b'?`; "" without a name."""
    if not names:
        return ""
    *others, last = [repr(name) for name in names]
    return f"Did you mean {', '.join(others)} or {last}?" if others else f"Did you mean {last}?"


def _likeness(one: str, other: str) -> float:
    """Return a number from 0 to 1, which is 1 for names that differ in case and separators only.

    The larger one of two counts: how alike the whole names are; how alike their last words are, if these are long, a little lowered.
    """
    (before, _, end), (other_before, _, other_end) = one.rpartition("."), other.rpartition(".")
    last, whole = (_letters(end), _letters(other_end)), _ratio(_letters(one), _letters(other))
    if min(map(len, last)) < _LONG_WORD:
        return whole
    begun = before == other_before and (last[0].startswith(last[1]) or last[1].startswith(last[0]))
    return max(whole, _BEGUN if begun else _OF_THE_LAST_WORD * _ratio(*last))


def _letters(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _ratio(one: str, other: str) -> float:
    """Return the share of letters that two words have in common, in the same order; 0 if a quick look finds too few of them."""
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    if not one or not other or matcher.real_quick_ratio() < _MUCH_ALIKE or matcher.quick_ratio() < _MUCH_ALIKE:
        return 0.0  # a cluster may have thousands of topics
    return matcher.ratio()
