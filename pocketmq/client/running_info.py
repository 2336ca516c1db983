"""Running info of a push consumer (ConsumerRunningInfo), in the form that Java's tools parse."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, Final

from pocketmq.client.consume_rates import ConsumeRates
from pocketmq.client.consuming.process_queue import ProcessQueue
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import ConsumerData
from pocketmq.remoting.codes import LANGUAGE, VERSION_NAME

TASKS_MAX: Final = 500
FRAMES_MAX: Final = 50
"""Maximum number of frames that are shown of a stack."""


def running_info(
    data: ConsumerData,
    settings: Mapping[str, str],
    queues: Iterable[ProcessQueue],
    rates: Mapping[str, ConsumeRates],
    with_stacks: bool,
) -> dict[str, Any]:
    """Return ConsumerRunningInfo: settings, subscriptions, queues, rates; stacks of tasks and threads if asked for.

    `settings` are those that differ between kinds of consumers. All have Java's names.
    """
    table = ((fastjson.object_key(one.queue.broker_name, one.queue.queue_id, one.queue.topic), one.info()) for one in queues)
    info = {
        "properties": {
            "PROP_CLIENT_VERSION": VERSION_NAME,
            "PROP_CONSUME_TYPE": str(data.consume_type),
            "consumerGroup": data.group_name,
            "messageModel": str(data.message_model),
            "consumeFromWhere": str(data.consume_from_where),
            "consumeMessageBatchMaxSize": "1",
            "language": LANGUAGE,
            **settings,
        },
        "subscriptionSet": data.subscription_data_set,
        "mqTable": fastjson.object_map(table),
        "statusTable": {one.topic: rates.get(one.topic, ConsumeRates()).status() for one in data.subscription_data_set},
    }
    return {**info, "jstack": stacks()} if with_stacks else info


def stacks() -> str:
    """Return the stacks of the running loop's tasks and of all threads, one line per frame, like jstack."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    lines: list[str] = []
    for task in tasks[:TASKS_MAX]:
        lines += _stack(
            f"{task.get_name()} {getattr(task.get_coro(), '__qualname__', '')}", task.get_stack(limit=FRAMES_MAX)
        )
    if len(tasks) > TASKS_MAX:
        lines.append(f"{len(tasks) - TASKS_MAX} more tasks")
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        lines += _stack(names.get(ident, str(ident)), [found for found, _ in traceback.walk_stack(frame)][:FRAMES_MAX])
    return "\n".join(lines) + "\n"


def _stack(name: str, frames: list[FrameType]) -> Iterator[str]:
    yield f"{name:<40}STACK:"
    for frame in frames:
        code = frame.f_code
        yield f"{name:<40}{code.co_qualname}({code.co_filename}:{frame.f_lineno})"
    yield ""
