"""Reads the values of options as people write them, with their units: `2.5M`, `70%`, `400ms`."""

from __future__ import annotations

import math
from collections.abc import Callable

import click

from drumlin.config.quantities import parse_duration, parse_number, parse_share, parse_size

NUMBER_MAX = 1e15


class Quantity:
    """Reads the value of an option as people write it, with its unit. It must be more than 0, or at least `least` if
    that is given, and at most `most`. What is no number (`nan`, `inf`) cannot be written at all."""

    def __init__(
        self,
        name: str,
        parse: Callable[[str], float],
        example: str,
        *,
        least: float = -math.inf,
        most: float = NUMBER_MAX,
        or_zero: bool = False,
    ) -> None:
        self.name = name
        self._parse = parse
        self._example = example
        self._least = least
        self._most = most
        self._or_zero = or_zero

    def __call__(self, context: click.Context, option: click.Parameter, text: str | None) -> float | None:
        """Defaults come through here too, so they are written as a user would write them."""
        if text is None:
            return None
        number = self._read(text)
        if number < self._least or number < 0 or (number == 0 and not self._or_zero):
            raise click.BadParameter(f"{text} is too little: it must be {self._bound}.")
        if number > self._most:
            raise click.BadParameter(f"{text} is too much: {self._most:g} is the most.")
        return number

    @property
    def _bound(self) -> str:
        if self._least > 0:
            return f"{self._least:g} or more"
        return "0 or more" if self._or_zero else "more than 0"

    def _read(self, text: str) -> float:
        """Units are for amounts, so they are read without the sign."""
        amount = text.strip()
        sign = -1.0 if amount.startswith("-") else 1.0
        try:
            return sign * float(self._parse(amount.removeprefix("-")))
        except OverflowError:
            return sign * math.inf
        except ValueError as cause:
            raise click.BadParameter(f"{text!r} is not a {self.name}, such as {self._example}.") from cause


def _parse_whole(text: str) -> float:
    """Of things that are counted there is no half."""
    number = parse_number(text)
    return round(number) if 1 <= number < math.inf else number


NUMBER = Quantity("number", parse_number, "23148, 2.5M or 10 billion")
COUNT = Quantity("number", _parse_whole, "23148, 2.5M or 10 billion", least=1)
SIZE = Quantity("size", parse_size, "40kB")
SHARE = Quantity("share", parse_share, "0.7 or 70%")
SHARE_OR_NONE = Quantity("share", parse_share, "0.1 or 10%", or_zero=True)
DURATION = Quantity("duration", parse_duration, "400ms")
