"""The sub-commands by family: name and summary of each. A family is a module here, imported when it is used."""

from typing import Final

FAMILIES: Final[dict[str, dict[str, str]]] = {
    "topic": {
        "topicRoute": "Show a topic's route",
        "topicStatus": "Show offsets and last update of a topic's queues",
    },
}
