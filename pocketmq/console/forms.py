"""Input of browsers with its limits: fields of forms, and values in the query of links."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from pocketmq.admin.api.message_pages import Place
from pocketmq.console import values

SIZE_MAX: Final = 5 << 20
"""Maximum bytes of a form as it is sent, in which most bytes outside ASCII take three."""
_FIELDS_MAX: Final = 200
QUEUES_MAX: Final = 128
"""Maximum number of queues whose messages one list merges."""


class WrongInput(Exception):
    """Input that the user can correct. `key`: of its text, which the values complete."""

    status = 400

    def __init__(self, key: str, /, **values: object) -> None:
        super().__init__(key)
        self.key, self.values = key, values


class NotFound(WrongInput):
    """Raised for a page of something that does not exist, or not any more."""

    status = 404


def whole(text: str) -> int:
    """Return a whole number of a link. Raises WrongInput."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise WrongInput("wrong.position")
    return int(text)


def positions_text(positions: Mapping[Place, int]) -> str:
    """Return positions in the queues of a topic for a link to a further page, as `broker:queue:offset,...`."""
    return ",".join(f"{broker_name}:{queue_id}:{offset}" for (broker_name, queue_id), offset in positions.items())


def positions_of(text: str) -> dict[Place, int]:
    """Return the positions in a text. Raises WrongInput."""
    found: dict[Place, int] = {}
    for item in filter(None, text.split(",")):
        broker_name, _, numbers = item.partition(":")
        queue_id, _, offset = numbers.partition(":")
        found[broker_name, whole(queue_id)] = whole(offset)
    if len(found) > QUEUES_MAX:
        raise WrongInput("wrong.position")
    return found


def moment(text: str, field: str) -> int:
    """Return the time of an input of type datetime-local in ms since 1970. Raises WrongInput."""
    try:
        return values.from_input(text)
    except (ValueError, OverflowError, OSError):
        raise WrongInput("wrong.time", field=field) from None


class Form:
    """The fields of a form by name; of a name that occurs more than once the last one counts, except in `all`."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields
        self._last: Mapping[str, str] = dict(fields)

    def text(self, name: str, default: str = "") -> str:
        """Return a field without blanks around it."""
        return self._last.get(name, default).strip()

    def raw(self, name: str) -> str:
        """Return a field as it is, with line ends as browsers show them."""
        return self._last.get(name, "").replace("\r\n", "\n")

    def all(self, name: str) -> list[str]:
        """Return all values of a field that may occur more than once, such as boxes that are ticked."""
        return [value for key, value in self._fields if key == name]

    def flag(self, name: str) -> bool:
        """Return whether a box is ticked."""
        return name in self._last

    def required(self, name: str) -> str:
        """Return a field that must not be empty. Raises WrongInput."""
        text = self.text(name)
        if not text:
            raise WrongInput("wrong.empty", field=name)
        return text

    def whole(self, name: str, low: int, high: int) -> int:
        """Return a whole number within inclusive limits. Raises WrongInput."""
        text = self.text(name)
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise WrongInput("wrong.whole", field=name, low=low, high=high)
        return int(text)

    def one_of(self, name: str, known: tuple[str, ...]) -> str:
        """Return one of some words. Raises WrongInput."""
        text = self.text(name)
        if text not in known:
            raise WrongInput("wrong.one_of", field=name, known=", ".join(known))
        return text

    def confirm(self, name: str) -> None:
        """Raise WrongInput unless the user has typed the name of what will be lost."""
        if self._last.get("confirm", "") != name:
            raise WrongInput("wrong.confirm", name=name)


async def read_form(request: Request) -> Form:
    """Return the fields of a request's form. Raises WrongInput."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise WrongInput("wrong.form")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > SIZE_MAX:
            raise WrongInput("wrong.form_size", size=SIZE_MAX)
    try:
        return Form(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict"))
    except ValueError:
        raise WrongInput("wrong.form") from None
