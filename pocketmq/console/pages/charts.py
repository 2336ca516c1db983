"""Charts of the last hour: rates and disk use of each broker, as SVG by the browser and as a table."""

from typing import Final

from starlette.responses import JSONResponse, Response

from pocketmq.admin.api.brokers import runtime_info
from pocketmq.admin.api.client import sorted_addresses
from pocketmq.console.routes import page
from pocketmq.console.sampler import INTERVAL_S, Sample
from pocketmq.console.tables import Column
from pocketmq.console.view import View

MENU: Final = ("/charts", "charts.title")
FIGURES: Final = ("in_rate", "out_rate", "disk_ratio")

COLUMNS: Final = (
    Column("time", "word.time", lambda row: row[0].time_ms, is_number=True),
    Column("broker", "word.broker", lambda row: row[1]),
    Column("in", "charts.in_rate", lambda row: row[0].in_rate, is_number=True),
    Column("out", "charts.out_rate", lambda row: row[0].out_rate, is_number=True),
    Column("disk", "charts.disk_ratio", lambda row: row[0].disk_ratio, is_number=True),
)


async def show(view: View) -> Response:
    rings = await _rings(view)
    rows = [(sample, name) for name, ring in rings.items() for sample in ring]
    table = view.table(COLUMNS, rows, descending=True)
    return view.render("charts.html", table=table, figures=FIGURES, interval_s=int(INTERVAL_S))


async def data(view: View) -> Response:
    rings = await _rings(view)
    return JSONResponse({"brokers": {name: [list(sample) for sample in ring] for name, ring in rings.items()}})


async def _rings(view: View) -> dict[str, list[Sample]]:
    """Return the samples of the brokers that tell the browser's account their figures, by name."""
    info = await view.admin.cluster_info()
    addresses = {
        f"{name} {broker_id}": address
        for name, data in sorted(info.broker_addr_table.items())
        for broker_id, address in sorted_addresses(data)
    }
    told = await view.ask_each(addresses, lambda at: runtime_info(view.admin, at))
    rings = view.console.sampler.rings
    return {name: list(rings[addresses[name]]) for name in told if addresses[name] in rings}


ROUTES: Final = (page("/charts", show), page("/charts/data", data))
