"""Test support for transactions: a data path with transactional producers."""

from collections.abc import Callable
from typing import Any

from pocketmq.broker.clients.client_registry import ClientChannelInfo
from pocketmq.broker.transaction.transaction_op import op_message
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.store.format.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from pocketmq.store.format.properties import decode_properties, encode_properties
from pocketmq.store.format.record import Record
from tests.broker.data_path import TOPIC, DataPath, StubChannel, until

HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE, 0
GROUP, OFFSETS_GROUP = "pg", "CID_RMQ_SYS_TRANS"
TIMEOUT_MS, INTERVAL_MS = 6_000, 60_000


class Killed(BaseException):
    """Raised to simulate a kill before a record is put."""


class Transacting(DataPath):
    """A data path with transactions. `again` opens the same disk as after a kill: only the files are left."""

    def __init__(self, broker: dict[str, Any] | None = None, **how: Any) -> None:
        self.settings = broker
        super().__init__(broker, **how)

    def prepare(self, body: str, **properties: object) -> RemotingCommand:
        named = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"U-{body}"} | {k: str(v) for k, v in properties.items()}
        return self.send(encode_properties(named), body.encode(), sys_flag=TRANSACTION_PREPARED_TYPE)

    def producer(self, port: int = 41000, group: str = GROUP) -> StubChannel:
        """Connect a producer of a group."""
        channel: Any = StubChannel(port)
        self.services.clients.register_producer(group, ClientChannelInfo(channel, f"client-{port}", "JAVA", 401))
        return channel

    def end(self, half: Record, ending: int = COMMIT, **fields: Any) -> RemotingCommand:
        """End a transaction and return the answer."""
        return self.call(RequestCode.END_TRANSACTION, self._end_header(half, ending, **fields))

    def ask_end(self, half: Record, ending: int) -> None:
        """End a transaction without ending the turn."""
        self.ask(RequestCode.END_TRANSACTION, self._end_header(half, ending), oneway=True)

    def _end_header(self, half: Record, ending: int, **fields: Any) -> EndTransactionRequestHeader:
        settings = {
            "producer_group": GROUP,
            "tran_state_table_offset": half.queue_offset,
            "commit_log_offset": half.physical_offset,
            "commit_or_rollback": ending,
            "msg_id": "m",
        } | fields
        return EndTransactionRequestHeader(**settings)

    def end_asked(self, question: RemotingCommand, ending: int) -> None:
        """End a transaction as a checked producer does."""
        header = EndTransactionRequestHeader(
            GROUP, int(question.ext["tranStateTableOffset"]), int(question.ext["commitLogOffset"]), ending,
            question.ext["msgId"], from_transaction_check=True,
        )  # fmt: skip
        self.ask(RequestCode.END_TRANSACTION, header, oneway=True)
        self.turn()

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing is left to do before some time passes."""
        services = self.services

        def is_idle() -> bool:
            self.turn()
            return services.transactions.check.work.is_idle and services.delays.is_idle

        await until(is_idle)

    def persist(self) -> None:
        """Commit the transaction progress as consumer offsets, and write them."""
        self.store.flush_service.flush_log()
        for _ in range(2):
            self.services.transactions.persist()
        self.services.offsets.persist()

    def progress(self) -> tuple[int, int]:
        """Return the committed consumer offsets in half and op queue."""
        offsets = self.services.offsets
        return offsets.query(OFFSETS_GROUP, HALF, 0), offsets.query(OFFSETS_GROUP, OP, 0)

    def stop(self) -> None:
        self.services.transactions.check.work.stop()
        self.services.delays.stop()

    def again(self) -> "Transacting":
        self.stop()
        self.disk._locked.clear()  # the killed process holds no lock
        return Transacting(self.settings, disk=self.disk, clock=self.clock)

    def put_op(self, body: bytes) -> None:
        """Put an op message as another broker would."""
        message = op_message(0, 0, bytes(8))
        message.body = body
        self.services.putter.put_at_once(message)
        self.turn()

    def kill_before_put(self, number: int) -> None:
        """Simulate a kill before the put with that number, counted from 0."""
        left = [number]

        def counted(put: Callable[..., Any]) -> Callable[..., Any]:
            def one_less(*arguments: Any) -> Any:
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                return put(*arguments)

            return one_less

        self.store.commit_log.put = counted(self.store.commit_log.put)  # type: ignore[method-assign]
        self.store.commit_log.put_batch = counted(self.store.commit_log.put_batch)  # type: ignore[method-assign]

    def bodies(self, topic: str = TOPIC, queue_id: int = 0) -> list[str]:
        return [record.body.decode() for record in self.stored(topic, queue_id)]

    def halves(self) -> list[Record]:
        return self.stored(HALF)

    def ops(self) -> list[str]:
        return self.bodies(OP)


def properties(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)
