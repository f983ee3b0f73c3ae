"""What a misspelt name was probably meant to be, for error messages."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``", did you mean 'x'?"``, or nothing when no known name comes near.

    Names count as near when they differ in letter case, in dashes for underscores, or in
    about a third of their letters.
    """
    from difflib import get_close_matches

    plain = {name.lower().replace("-", "_"): name for name in known}
    found = get_close_matches(str(word).lower().replace("-", "_"), plain, n=1)
    return f", did you mean {plain[found[0]]!r}?" if found else ""
