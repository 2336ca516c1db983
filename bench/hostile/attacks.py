"""The table of attacks: by name, in the order in which they run."""

from collections.abc import Callable
from types import ModuleType
from typing import Final

from bench.hostile import catch_up, cost, grpc_front, memory, name_server, poison
from bench.hostile.peer import Peer

Attack = Callable[[Peer], None]


def none(peer: Peer) -> None:
    """No attack: shows the machine's own noise."""
    peer.wait_to_the_end()


def _of(module: ModuleType) -> dict[str, Attack]:
    public = {name: value for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    return {name.replace("_", "-"): attack for name, attack in public.items() if callable(attack) and name[0] != "_"}


ATTACKS: Final[dict[str, Attack]] = {
    "none": none,
    **_of(cost),
    **_of(poison),
    **_of(memory),
    **_of(name_server),
    **_of(catch_up),
    **_of(grpc_front),
}


def described(name: str) -> str:
    """Return the description of an attack in one line."""
    return (ATTACKS[name].__doc__ or "").strip().split("\n")[0]
