"""The commands of the analytics, one line each, for lists of commands. Loads nothing, so that a list appears at once."""

from typing import Final

ABOUT: Final = {
    "report": "one page of volume, lateness, lag, dead letters and consistency",
    "audit": "check log, queues and offsets against each other",
    "trace": "the history of one message",
    "export": "export the log as files of a table",
}
