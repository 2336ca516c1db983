"""The cluster: its brokers with role, version, replication lag, disk use and rates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from pocketmq.admin.api.brokers import first_rate, out_rates, runtime_info, totals_of_day
from pocketmq.admin.api.client import sorted_addresses
from pocketmq.client.route import MASTER_ID
from pocketmq.console.forms import NotFound
from pocketmq.console.routes import page
from pocketmq.console.tables import PAIRS, Column, columns
from pocketmq.console.view import View

MENU: Final = ("/", "cluster.title")


@dataclass(frozen=True)
class Broker:
    """A broker with its figures; `info` is empty if it does not tell them."""

    cluster: str
    name: str
    broker_id: str
    address: str
    info: Mapping[str, str]
    master_info: Mapping[str, str]

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    @property
    def version(self) -> str:
        return self.info.get("brokerVersionDesc", "")

    @property
    def in_rate(self) -> float:
        return first_rate(self.info.get("putTps", ""))

    @property
    def out_rate(self) -> float:
        return first_rate(out_rates(self.info))

    @property
    def in_today(self) -> int:
        return totals_of_day(self.info).in_today

    @property
    def disk_ratio(self) -> float | None:
        return _ratio(self.info.get("commitLogDiskRatio"))

    @property
    def log_size(self) -> int | None:
        low, high = _whole(self.info.get("commitLogMinOffset")), _whole(self.info.get("commitLogMaxOffset"))
        return None if low is None or high is None else high - low

    @property
    def lag(self) -> int | None:
        """Bytes of the master's log that a slave does not have yet; None for a master, and if it is not known."""
        own, of_master = (_whole(info.get("commitLogMaxOffset")) for info in (self.info, self.master_info))
        return None if self.is_master or own is None or of_master is None else max(of_master - own, 0)

    @property
    def started_ms(self) -> int:
        return _whole(self.info.get("bootTimestamp")) or 0


COLUMNS: Final = (
    Column("broker", "word.broker", lambda row: (row.name, row.broker_id)),
    Column("role", "cluster.role", lambda row: row.broker_id),
    *columns("word.address", "word.version"),
    Column("in", "cluster.in_rate", lambda row: row.in_rate, is_number=True),
    Column("out", "cluster.out_rate", lambda row: row.out_rate, is_number=True),
    Column("today", "cluster.in_today", lambda row: row.in_today, is_number=True),
    Column("lag", "cluster.lag", lambda row: row.lag or 0, is_number=True),
    Column("log", "cluster.log_size", lambda row: row.log_size or 0, is_number=True),
    Column("disk", "cluster.disk", lambda row: row.disk_ratio or 0.0, is_number=True),
)


async def show(view: View) -> Response:
    brokers = await _brokers(view)
    clusters = sorted({broker.cluster for broker in brokers})
    namesrvs = view.admin.namesrv_addresses
    return view.render("cluster.html", table=view.table(COLUMNS, brokers), clusters=clusters, namesrvs=namesrvs)


async def _brokers(view: View) -> list[Broker]:
    """Return all brokers; the figures of all are asked at the same time."""
    info = await view.admin.cluster_info()
    places = [
        (cluster, name, broker_id, address)
        for cluster, names in sorted(info.cluster_addr_table.items())
        for name in sorted(names)
        for broker_id, address in sorted_addresses(info.broker_addr_table.get(name))
    ]
    infos = await view.ask_each({address: address for *_, address in places}, lambda at: runtime_info(view.admin, at))
    masters = {name: infos.get(address, {}) for _, name, broker_id, address in places if broker_id == MASTER_ID}
    return [Broker(*place, infos.get(place[3], {}), masters.get(place[1], {})) for place in places]


async def show_broker(view: View) -> Response:
    address = view.required("address")
    broker = next((one for one in await _brokers(view) if one.address == address), None)
    if broker is None:
        raise NotFound("cluster.unknown_broker", address=address)
    return view.render("broker.html", broker=broker, table=view.table(PAIRS, sorted(broker.info.items())))


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None


def _ratio(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


ROUTES: Final = (page("/", show), page("/broker", show_broker))
