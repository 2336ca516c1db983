"""Transactional messages: python examples/python/transactions.py 127.0.0.1:9876"""

import asyncio
import sys

from pocketmq import Message, MessageExt, Producer, PushConsumer, TransactionState

database: set[str] = set()


def check(half: MessageExt) -> TransactionState:
    """Answer a broker that did not get the end of a transaction, because this process was killed or a packet was lost."""
    return TransactionState.COMMIT if half.keys in database else TransactionState.ROLLBACK


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "TransactionExample", check=check) as producer:
        await producer.create_topic("Payments")
        async with producer.transaction(Message("Payments", b"committed", keys="order-1")):
            database.add("order-1")

        try:
            async with producer.transaction(Message("Payments", b"rolled back", keys="order-2")):
                raise ValueError("no money")
        except ValueError as failure:
            print("rolled back:", failure)

        async with producer.transaction(Message("Payments", b"asked for", keys="order-3")) as transaction:
            database.add("order-3")
            transaction.leave_open()  # the broker will ask

        consumer = PushConsumer(namesrv, "TransactionExampleConsumer", start="first")
        consumer.subscribe("Payments")
        async with consumer:
            async for message in consumer:
                print(message.body.decode())
                if message.keys == "order-3":
                    break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
