"""Payments: the bank calls back by HTTP, and the payment becomes known to the other services by a message.

The call-back may come when no broker is there. So the message is written to a local message table by the transaction that
notes the payment, is sent until a broker has stored it, and is then removed from the table.

    curl http://127.0.0.1:8090/paid -d '{"order": "A1", "amount": 1500}'        the bank repeats it until the answer is 200
"""

import asyncio
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from examples.shop import inbox
from examples.shop.database import Transaction
from examples.shop.service import ORDERS, PAYMENTS, Service, arguments, start
from pocketmq import MessageExt, MQError

log = logging.getLogger("shop")

PAID, REFUNDED = "paid", "refunded"
SEND_AGAIN_S = 0.5
TABLES = """
CREATE TABLE IF NOT EXISTS payments (order_id TEXT PRIMARY KEY, amount BIGINT, state TEXT, version INTEGER);
CREATE TABLE IF NOT EXISTS local_messages (tag TEXT, message_key TEXT, body TEXT, PRIMARY KEY (tag, message_key));
"""


def note_payment(transaction: Transaction, order_id: str, amount: int) -> None:
    """Note a payment together with its message; without effect if it was noted before."""
    if transaction.execute("INSERT INTO payments VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING", order_id, amount, PAID):
        _put(transaction, PAID, order_id, amount)


def refund(transaction: Transaction, group: str, message: MessageExt) -> None:
    """Pay back, once. A real shop would have its bank do so by a message of its own."""
    if not inbox.is_first(transaction, group, message):
        return
    row = transaction.row("SELECT amount, version FROM payments WHERE order_id = ? AND state = ?", message.keys, PAID)
    if row is None:
        raise LookupError(f"order {message.keys} has no payment to be refunded")
    update = "UPDATE payments SET state = ?, version = version + 1 WHERE order_id = ? AND version = ?"
    transaction.change(update, REFUNDED, message.keys, row[1])
    _put(transaction, REFUNDED, str(message.keys), row[0])


def _put(transaction: Transaction, tag: str, order_id: str, amount: int) -> None:
    body = json.dumps({"amount": amount})
    transaction.execute("INSERT INTO local_messages VALUES (?, ?, ?)", tag, order_id, body)


def unsent(transaction: Transaction) -> list[tuple[Any, ...]]:
    return transaction.rows("SELECT tag, message_key, body FROM local_messages LIMIT 100")


def remove(transaction: Transaction, tag: str, key: str) -> None:
    transaction.execute("DELETE FROM local_messages WHERE tag = ? AND message_key = ?", tag, key)


class Payments(Service):
    """The payment service."""

    def __init__(self) -> None:
        options = arguments("payment", port=8090)
        super().__init__("payment", options, TABLES)
        self._port = options.port
        self._has_unsent = asyncio.Event()
        self.background = [self._send_local_messages, self._serve_bank]
        self.consume(ORDERS, "refund", self._on_refund)

    async def paid(self, order_id: str, amount: int) -> None:
        """Take a call-back of the bank. Once this returns, the payment is noted and its message will be sent."""
        await self.database.run(note_payment, order_id, amount)
        self._has_unsent.set()

    async def _on_refund(self, message: MessageExt) -> None:
        await self.database.run(refund, self.name, message)
        self._has_unsent.set()

    async def _send_local_messages(self) -> None:
        """Send what is in the table, also what a process that died has left there."""
        while True:
            self._has_unsent.clear()
            try:
                for tag, key, body in await self.database.run(unsent):
                    result = await self.producer.send(PAYMENTS, body.encode(), tag=tag, keys=key)
                    if result.status == "SEND_OK":
                        await self.database.run(remove, tag, key)
            except (MQError, OSError) as failure:
                log.warning("payment: local messages wait: %s", failure)
            try:
                await asyncio.wait_for(self._has_unsent.wait(), SEND_AGAIN_S)
            except TimeoutError:
                continue

    async def _serve_bank(self) -> None:
        """Serve the bank's call-backs, in threads."""
        loop, service = asyncio.get_running_loop(), self

        class CallBack(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                try:
                    note = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                    work = service.paid(str(note["order"]), int(note["amount"]))
                except (TypeError, ValueError, KeyError):
                    self.send_error(400)
                    return
                asyncio.run_coroutine_threadsafe(work, loop).result()
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing for each request."""

        server = ThreadingHTTPServer(("127.0.0.1", self._port), CallBack)
        threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    start(Payments)
