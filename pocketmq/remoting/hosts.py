"""Addresses of peers as text and in the form of message records, and the address of this machine."""

import ipaddress
import socket
import struct


def plain_host(host: str) -> str:
    """Return an address as text; an IPv4 address mapped to IPv6 (`::ffff:a.b.c.d`) in its IPv4 form."""
    mapped = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(mapped, ipaddress.IPv6Address) and mapped.ipv4_mapped is not None:
        return str(mapped.ipv4_mapped)
    return str(mapped)


def pack_host(host: str, port: int) -> bytes:
    """Return address (4 or 16 bytes) and port (i32) in the form of message records and offsetMsgIds."""
    return ipaddress.ip_address(host).packed + struct.pack(">i", port)


def local_address() -> str:
    """Return this machine's IPv4 address for connections to other machines; loopback if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # documentation range; connecting a datagram socket sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
