"""Types of command line options whose errors name option, value and the expected form.

@click.option("--count", type=WholeNumber(1), default=1)          pocketmq: error: --count 0: expected a whole number ...
@click.option("-n", "--namesrv", type=ADDRESSES, envvar="NAMESRV_ADDR", default=NAMESRV_DEFAULT)
"""

from collections.abc import Callable
from typing import Any, Final, NoReturn

import click

from pocketmq.runtime.command_line.commands import nearest
from pocketmq.runtime.config import is_within, range_text

NAMESRV_DEFAULT: Final = "127.0.0.1:9876"


def refuse(
    value: object, expected: str, param: click.Parameter | None = None, context: click.Context | None = None
) -> NoReturn:
    """Raise the error `OPTION VALUE: expected EXPECTED`."""
    error = click.BadParameter(f"expected {expected}", context, param)
    error.value = value  # type: ignore[attr-defined]  # shown by commands.usage_text
    raise error


class Number(click.ParamType[float]):
    """A number within inclusive limits."""

    name = "N"
    kind: type[float] = float

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low, self.high = low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = self.kind(value)
        except ValueError:
            number = float("nan")
        if not is_within(number, self.low, self.high):
            refuse(value, range_text(self.kind, self.low, self.high), param, ctx)
        return number


class WholeNumber(Number):
    """A whole number within inclusive limits."""

    kind = int


class OneOf(click.Choice[str]):
    """One of several words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            refuse(value, f"one of {', '.join(self.choices)}{nearest(str(value), self.choices)}", param, ctx)
        return str(value)


class Addresses(click.ParamType[str]):
    """HOST:PORT, several separated by `;` (or `,`), as RocketMQ's tools take it."""

    name = "HOST:PORT"

    def __init__(self, *, may_be_empty: bool = False) -> None:
        self.may_be_empty = may_be_empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        addresses = [address.strip() for address in str(value).replace(",", ";").split(";") if address.strip()]
        if not (addresses or self.may_be_empty) or not all(is_address(address) for address in addresses):
            refuse(value, "HOST:PORT, several separated by ';', such as 127.0.0.1:9876", param, ctx)
        return ";".join(addresses)


class Checked(click.ParamType[Any]):
    """A value parsed or checked by a function. Errors show the text of its ValueError or, if given, the `expected` form."""

    def __init__(self, name: str, parse: Callable[[str], Any], expected: str | None = None) -> None:
        self.name = name
        self._parse = parse
        self._expected = expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except ValueError as error:
            if self._expected is None:
                raise click.BadParameter(str(error), ctx, param) from None
            refuse(value, self._expected, param, ctx)


def is_address(text: str) -> bool:
    """Return whether the text is HOST:PORT with a port from 1 to 65535; an IPv6 address is in brackets."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return False
    return not any(character.isspace() or character in "/@" for character in host) and (":" not in host or host[0] == "[")


def _address(text: str) -> str:
    if not is_address(text):
        raise ValueError
    return text


ADDRESSES: Final = Addresses()
ADDRESS: Final = Checked("HOST:PORT", _address, "HOST:PORT, such as 127.0.0.1:10911")
"""One HOST:PORT."""
