"""Configuration: the keys of a broker and of the name servers, and changes of the keys that a running broker takes."""

from typing import Final, NamedTuple

from starlette.responses import Response

from pocketmq.admin.api.brokers import config_and_updatable, update_broker_config
from pocketmq.admin.api.client import sorted_addresses
from pocketmq.admin.api.nameservers import namesrv_configs
from pocketmq.console.forms import WrongInput
from pocketmq.console.routes import action, page
from pocketmq.console.tables import Column, columns
from pocketmq.console.view import View

MENU: Final = ("/configuration", "configuration.title")
SECRET: Final = ("secret", "password", "credential")
_VALUE_SIZE_MAX: Final = 10_000


class KeyRow(NamedTuple):
    """A key of a config; the value of a secret is not shown."""

    key: str
    value: str
    is_updatable: bool


NAMESRV_COLUMNS: Final = columns("configuration.key", "word.value")
COLUMNS: Final = (
    *NAMESRV_COLUMNS,
    Column("updatable", "configuration.updatable", lambda row: not row.is_updatable, is_number=True),
)


async def show(view: View) -> Response:
    servers = await _servers(view)
    chosen = view.query.get("broker") or next(iter(servers), "")
    config = None
    if chosen in servers:
        config = await view.ask(chosen, config_and_updatable(view.admin, servers[chosen]))
    updatable = config.updatable if config else frozenset()
    rows = [_row(key, value, key in updatable) for key, value in (config.values if config else {}).items()]
    namesrvs = await view.ask(view.text("configuration.namesrvs"), namesrv_configs(view.admin)) or {}
    return view.render(
        "configuration.html",
        servers=list(servers),
        chosen=chosen,
        table=view.table(COLUMNS, rows),
        namesrvs={
            address: view.table(NAMESRV_COLUMNS, [_row(*item, False) for item in values.items()], f"n{number}")
            for number, (address, values) in enumerate(namesrvs.items())
        },
    )


async def show_key(view: View) -> Response:
    broker, key = view.required("broker"), view.required("key")
    config = await config_and_updatable(view.admin, await _address(view, broker))
    if key not in config.updatable or _is_secret(key):
        raise WrongInput("configuration.not_updatable", key=key)
    return view.render("configuration_key.html", broker=broker, key=key, value=config.values.get(key, ""))


async def change(view: View) -> Response:
    broker, key = view.form.required("broker"), view.form.required("key")
    value = view.form.text("value")
    if len(value) > _VALUE_SIZE_MAX or not value.isprintable():
        raise WrongInput("configuration.wrong_value", key=key)
    address = await _address(view, broker)
    if key not in (await config_and_updatable(view.admin, address)).updatable:
        raise WrongInput("configuration.not_updatable", key=key)
    await update_broker_config(view.admin, address, key, value)
    return view.redirect("/configuration", "config_changed", broker=broker, q=key)


async def _servers(view: View) -> dict[str, str]:
    """Return the address of each broker by its name; the name of a slave has its id."""
    return {
        name if place == 0 else f"{name} {broker_id}": address
        for name, data in sorted((await view.admin.cluster_info()).broker_addr_table.items())
        for place, (broker_id, address) in enumerate(sorted_addresses(data))
    }


async def _address(view: View, broker: str) -> str:
    address = (await _servers(view)).get(broker)
    if address is None:
        raise WrongInput("configuration.unknown_broker", broker=broker)
    return address


def _row(key: str, value: str, is_updatable: bool) -> KeyRow:
    is_secret = _is_secret(key) and bool(value)
    return KeyRow(key, "•••" if is_secret else value, is_updatable and not is_secret)


def _is_secret(key: str) -> bool:
    return any(part in key.lower() for part in SECRET)


ROUTES: Final = (
    page("/configuration", show),
    page("/configuration/key", show_key),
    action("/configuration/change", change),
)
