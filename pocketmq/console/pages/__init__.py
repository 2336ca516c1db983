"""Pages of the console: one module for each row of the menu, with its ROUTES, and `MENU`: its first page and its text."""

from typing import Final

from pocketmq.console.pages import (
    access,
    charts,
    cluster,
    configuration,
    dead_letters,
    delayed,
    groups,
    message,
    messages,
    producers,
    sign_in,
    topics,
)

_MODULES: Final = (cluster, topics, groups, messages, dead_letters, delayed, producers, access, configuration, charts)
"""In the order of the menu."""

MENU: Final = tuple(module.MENU for module in _MODULES)
ROUTES: Final = tuple(route for module in (*_MODULES, message, sign_in) for route in module.ROUTES)
MENU_OF: Final = {route.path: module.MENU[0] for module in _MODULES for route in module.ROUTES} | {
    route.path: messages.MENU[0] for route in message.ROUTES
}
"""The row of the menu to which a page belongs."""
