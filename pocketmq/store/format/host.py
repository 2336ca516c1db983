"""Packed host addresses of records as text."""

import ipaddress


def host_text(packed: bytes) -> str:
    """Return `ip:port` of 4 or 16 bytes of address and 4 bytes of port; IPv6 addresses are in brackets."""
    address, port = ipaddress.ip_address(packed[:-4]), int.from_bytes(packed[-4:], "big", signed=True)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"
