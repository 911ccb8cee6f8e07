"""What values of options may be, beyond what click knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kprof_inject.timeline.number_set import NumberSet

    _OfNumbers = click.ParamType[NumberSet]
else:
    # Older versions of Click have it without a parameter.
    _OfNumbers = click.ParamType


class ByteCount(click.IntRange):
    """A number of bytes, or ``auto``, which is 0."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return 0 if value == "auto" else super().convert(value, param, ctx)


class Numbers(_OfNumbers):
    """A ``NumberSet``, from what the user writes or from a single number."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NumberSet:
        """Raises ``KprofError`` that points into the value."""
        # With it comes numpy, which the help of the whole program does without.
        from kprof_inject.timeline.number_set import NumberSet

        if isinstance(value, NumberSet):
            return value
        return NumberSet.parse(str(value), param.opts[0] if param else self.name)
