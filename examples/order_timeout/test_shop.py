"""Tests of the shop with a virtual clock; pytest finds the fixture once PocketMQ is installed."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from shop import Order, Shop

PATIENCE_S = 20


async def came(shop: Shop, *numbers: str) -> None:
    """Wait until these messages are consumed, which takes real time as with any client."""
    async with asyncio.timeout(PATIENCE_S):
        while not set(numbers) <= set(shop.reminded):
            await asyncio.sleep(0.01)


def test_unpaid_order_is_cancelled_after_half_an_hour(pocketmq_cluster) -> None:
    async def story() -> None:
        async with Shop(pocketmq_cluster.namesrv_address) as shop:
            await shop.order("A1")
            await shop.order("A2")
            pocketmq_cluster.advance("29m59s")
            await shop.pay("A2")
            await shop.order("A3")
            assert shop.reminded == [], "nothing comes early"
            pocketmq_cluster.advance("1s")
            await came(shop, "A1")
            assert shop.orders == {"A1": Order.CANCELLED, "A2": Order.PAID, "A3": Order.OPEN}
            assert not await shop.pay("A1"), "too late"
            pocketmq_cluster.advance("1h")
            await came(shop, "A3")
            assert shop.orders["A3"] is Order.CANCELLED
            assert shop.reminded == ["A1", "A3"], "the message of the paid order was taken back"

    asyncio.run(story())


def test_virtual_clock_advances_by_a_year(pocketmq_cluster) -> None:
    before_ms = pocketmq_cluster.now_ms
    assert pocketmq_cluster.advance("365d") == before_ms + 365 * 86_400_000
