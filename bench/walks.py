"""Walks: how often the work for one message moves from module to module, in a broker that has nothing else to do.

    python -m bench.walks [WALK] [--steps]

A *move* is a call into a module of `pocketmq` from another module of it, or from the event loop. They are counted from the
frame that asks until the end of its turn, and for a delayed message also from its due time until its copy is in its queue.
In between the slots of a second are loaded, once. What the broker does at intervals does not count. `--steps` prints each
move.
"""

import argparse
import asyncio
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay import engine
from pocketmq.lane import VARIABLE
from pocketmq.remoting.codes import RequestCode
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.memory_disk import MemoryDisk

TOPIC, GROUP = "Walks", "walkers"
PACKAGE = "pocketmq."
INTERVALS = "Timers.every.<locals>.again"
DELAY_S = 1
DELIVERY_S = 1.0
"""Time for a turn of deliveries, which take many times as long while their calls are counted."""
BEGIN_S, SENT_S, LOADED_S, DELIVERED_S = 0.3, 0.4, 1.2, 1.6
"""Times within a second: when a request is sent, its turn over, the slots loaded, a delayed message delivered."""
Step = tuple[str, str, str]
"""Caller's module, callee's module, function."""


class Walk:
    """Counts moves in this thread while the block runs."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __enter__(self) -> "Walk":
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not module.startswith(PACKAGE):
            return
        before, caller = "", frame.f_back
        while caller is not None:
            if caller.f_code.co_qualname == INTERVALS:
                return
            name = caller.f_globals.get("__name__", "")
            before = before or (name if name.startswith(PACKAGE) else "")
            caller = caller.f_back
        if before != module and frame.f_code.co_qualname != INTERVALS:
            self.steps.append((before or "the event loop", module, frame.f_code.co_qualname))


def _request(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    """Return the frame of a request."""
    header = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1, "version": 401}
    encoded = json.dumps(header | {"serializeTypeCurrentRPC": "JSON"}).encode()
    return struct.pack(">II", 4 + len(encoded) + len(body), len(encoded)) + encoded + body


def _send(**properties: object) -> bytes:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    fields = {
        "producerGroup": GROUP, "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": text,
    }  # fmt: skip
    return _request(RequestCode.SEND_MESSAGE, fields, b"walk")


def _pull() -> bytes:
    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    return _request(RequestCode.PULL_MESSAGE, fields)


def _pop() -> bytes:
    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": "1", "invisibleTime": "60000", "pollTime": "0",
        "bornTime": "0", "initMode": "0",
    }  # fmt: skip
    return _request(RequestCode.POP_MESSAGE, fields)


WALKS: dict[str, Callable[[], bytes]] = {
    "send": _send,
    "pull": _pull,
    "pop": _pop,
    "level": lambda: _send(DELAY=1),
    "timer": lambda: _send(TIMER_DELAY_SEC=DELAY_S),
}
DELAYED = ("level", "timer")


async def walked(name: str) -> list[list[Step]]:
    """Return the moves of a request, and for a delayed message those until it is due and those of its delivery.

    Another one goes before it, which makes files and looks up what later ones know.
    """
    config = BrokerConfig(namesrv_addr=None, listen_port=0, broker_name="walks")
    store_config = MessageStoreConfig(message_delay_level=f"{DELAY_S}s", mapped_file_size_commit_log=1 << 24)
    broker = Broker(config, store_config, MemoryDisk())
    await broker.start()
    try:
        reader, writer = await asyncio.open_connection(*broker.address.split(":"))
        for frame in [_send()] * 3 + [WALKS[name]()] * 2:
            await asyncio.sleep(2 - time.time() % 1)
            began_s, parts = time.monotonic(), list[list[Step]]()
            await asyncio.sleep(BEGIN_S)
            writer.write(frame)
            for end_s in (SENT_S, LOADED_S, DELIVERED_S) if name in DELAYED else (SENT_S,):
                with Walk() as walk:
                    await asyncio.sleep(began_s + end_s - time.monotonic())
                parts.append(walk.steps)
            answer = await reader.read(1 << 16)
            code = json.loads(answer[8 : 8 + (int.from_bytes(answer[4:8], "big") & 0xFFFFFF)])["code"]
            if code != 0:
                raise RuntimeError(f"the broker answers {code}: {answer!r}")
        writer.close()
    finally:
        await broker.stop()
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("walk", nargs="?", choices=WALKS)
    parser.add_argument("--steps", action="store_true", help="print each move")
    arguments = parser.parse_args()
    os.environ[VARIABLE] = "0"  # the Python path
    engine.BUDGET_S = DELIVERY_S  # type: ignore[misc]
    for name in [arguments.walk] if arguments.walk else WALKS:
        parts = asyncio.run(walked(name))
        steps = [step for part in parts for step in part]
        if arguments.steps:
            for before, module, function in steps:
                print(f"{before.removeprefix(PACKAGE):32} {module.removeprefix(PACKAGE)}.{function}")
        what = zip(parts, ("to send", "to load", "to deliver"), strict=False)
        split = f" ({', '.join(f'{len(part)} {word}' for part, word in what)})" if name in DELAYED else ""
        print(f"{name:6} {len(steps):4} moves{split}, {len({module for _, module, _ in steps})} modules")


if __name__ == "__main__":
    main()
