"""Half an hour passes in a moment: the fixture comes with PocketMQ (pip install pocketmq, then pytest finds it)."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from shop import Order, Shop

PATIENCE_S = 20


async def came(shop: Shop, *numbers: str) -> None:
    """Wait until these messages are consumed: that goes by real time, as with any client."""
    async with asyncio.timeout(PATIENCE_S):
        while not set(numbers) <= set(shop.reminded):
            await asyncio.sleep(0.01)


def test_an_order_that_is_not_paid_within_half_an_hour_is_cancelled(pocketmq_cluster) -> None:
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


def test_a_year_passes_too(pocketmq_cluster) -> None:
    before_ms = pocketmq_cluster.now_ms
    assert pocketmq_cluster.advance("365d") == before_ms + 365 * 86_400_000
