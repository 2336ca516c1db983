"""Links to further pages of a list: positions in the queues of a topic as texts, and the rest of the query."""

from collections.abc import Mapping
from typing import Final

from pocketmq.admin.api.message_pages import Place
from pocketmq.console.forms import WrongInput
from pocketmq.console.view import View

QUEUES_MAX: Final = 128
"""Maximum number of queues whose messages one list merges."""


def positions_text(positions: Mapping[Place, int]) -> str:
    """Return positions as `broker:queue:offset,...`."""
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


def whole(text: str) -> int:
    """Return a whole number of a link. Raises WrongInput."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise WrongInput("wrong.position")
    return int(text)


def query_without(view: View, *keys: str) -> dict[str, str]:
    """Return the query of a page without some keys, and without what was done before."""
    return {key: value for key, value in view.query.items() if key not in (*keys, "done")}
