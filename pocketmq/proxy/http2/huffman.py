"""Huffman code of header strings (RFC 7541, appendix B).

The code is canonical: the codes of one length are successive numbers in the order of their symbols, so that the lengths
alone describe it. It is decoded byte by byte: a step leads from a node of the code's tree over eight bits to the next node
and gives the symbols that end on the way. Steps are made when they are first needed.
"""

from functools import cache
from typing import Final

# fmt: off
_LENGTHS: Final = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22,
    23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22,
    22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26,
    26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27,
    27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27,
    27, 27, 27, 27, 26, 30,
)
# fmt: on
"""Bits of the codes of the bytes 0 to 255, and of the end of a string."""
_END: Final = 256
_PADDING_MAX: Final = 7
"""The last byte is filled with up to so many ones."""


def _tree() -> list[list[int]]:
    """Return the nodes of the code: children for 0 and 1, the number of a node, or ~symbol. Node 0 is the root."""
    nodes, code, last = [[0, 0]], -1, 0
    for symbol in sorted(range(len(_LENGTHS)), key=lambda one: (_LENGTHS[one], one)):
        length = _LENGTHS[symbol]
        code, last = (code + 1) << (length - last), length
        node = 0
        for bit in range(length - 1, 0, -1):
            side = code >> bit & 1
            if not nodes[node][side]:
                nodes.append([0, 0])
                nodes[node][side] = len(nodes) - 1
            node = nodes[node][side]
        nodes[node][code & 1] = ~symbol
    return nodes


_NODES: Final = _tree()
_STEPS: Final[dict[int, tuple[int, bytes]]] = {}
"""Node and byte (node * 256 + byte) -> next node (times 256) and decoded symbols. There are at most 65,536."""


@cache
def _ends() -> frozenset[int]:
    """Return the nodes (times 256) at which a string may end: those reached from the root by ones alone."""
    node, found = 0, {0}
    for _ in range(_PADDING_MAX):
        node = _NODES[node][1]
        found.add(node * 256)
    return frozenset(found)


def _step(key: int) -> tuple[int, bytes]:
    """Return the step of a node and a byte. Raises ValueError for the code of the end of a string."""
    node, byte, symbols = key >> 8, key & 255, bytearray()
    for bit in range(7, -1, -1):
        node = _NODES[node][byte >> bit & 1]
        if node < 0:
            if ~node == _END:
                raise ValueError("the code of the end in a Huffman string")
            symbols.append(~node)
            node = 0
    made = _STEPS[key] = node * 256, bytes(symbols)
    return made


def decoded(data: bytes) -> bytes:
    """Return the string that is encoded as `data`. Raises ValueError."""
    node, pieces = 0, []
    known = _STEPS.get
    for byte in data:
        node, symbols = known(node + byte) or _step(node + byte)
        pieces.append(symbols)
    if node not in _ends():
        raise ValueError("a Huffman string ends within a symbol")
    return b"".join(pieces)
