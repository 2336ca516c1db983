"""Reads all units of one slot of the timer wheel at once."""

from typing import NamedTuple

from pocketmq.store.format.layout import TIMER_MAGIC_DELETE, TIMER_MAGIC_ROLL
from pocketmq.store.timer.timer_log import Units, joined
from pocketmq.store.timer.timer_store import TimerStore


class SlotUnits(NamedTuple):
    """Units of a slot, oldest first. `marks` cancel messages of this slot; a mark with ROLL is among the messages."""

    messages: Units
    marks: Units


def units_at(timers: TimerStore, time_ms: int) -> SlotUnits:
    units = joined(timers.parts_at(time_ms))
    marks = units["magic"] & (TIMER_MAGIC_DELETE | TIMER_MAGIC_ROLL) == TIMER_MAGIC_DELETE
    return SlotUnits(units[~marks], units[marks])
