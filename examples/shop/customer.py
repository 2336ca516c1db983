"""A customer, and the customer's bank.

python -m examples.shop.customer order A1 apple 30 --coupon coupon-7 --account alice --money 300
python -m examples.shop.customer pay A1 700
"""

import argparse
import asyncio
import json
import urllib.request
from typing import Any

from examples.shop.service import ORDERS
from pocketmq import Message, Producer


async def place(producer: Producer, order_id: str, timeout_s: float = 15.0, **wanted: Any) -> dict[str, Any]:
    """Place an order; return its state and the amount to be paid. It may be repeated: a number is ordered once.

    Raises RequestTimeout if there is no answer in time; the order is then placed as soon as the services run.
    """
    request = Message(ORDERS, json.dumps(wanted).encode(), tags="place", keys=order_id)
    answer = await producer.request(request, timeout_s=timeout_s)
    return dict(json.loads(answer.body))


def pay(url: str, order_id: str, amount: int) -> None:
    """Call back as a bank does. Raises OSError if the payment service does not take it: then it must be repeated."""
    body = json.dumps({"order": order_id, "amount": amount}).encode()
    with urllib.request.urlopen(f"{url}/paid", body, timeout=10):
        pass


async def _order(options: argparse.Namespace) -> None:
    wanted = {name: getattr(options, name) for name in ("goods", "count", "coupon", "account", "money")}
    async with Producer(options.namesrv, "shop-customer") as producer:
        print(await place(producer, options.order, **wanted))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.shop.customer")
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--payment", default="http://127.0.0.1:8090", help="URL of the payment service")
    commands = parser.add_subparsers(dest="command", required=True)
    order = commands.add_parser("order")
    order.add_argument("order")
    order.add_argument("goods")
    order.add_argument("count", type=int)
    order.add_argument("--coupon")
    order.add_argument("--account", default="alice")
    order.add_argument("--money", type=int, default=0, help="cents of the account's balance to be used")
    payment = commands.add_parser("pay")
    payment.add_argument("order")
    payment.add_argument("amount", type=int, help="cents")
    options = parser.parse_args()
    if options.command == "order":
        asyncio.run(_order(options))
    else:
        pay(options.payment, options.order, options.amount)


if __name__ == "__main__":
    main()
