"""Accounts of `plain_acl.yml` for `mqproxy`: it needs their secret keys; the brokers decide what they may do."""

from pathlib import Path

import yaml

from pocketmq.proxy.clients.accounts import SignerOf
from pocketmq.remoting.signature import Signer
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.lifecycle import StartError


def signers_of_file(path: Path) -> SignerOf:
    """Return the function that finds an account of the file; it is read again when it changes. Raises StartError."""
    read_at_ns, signers = _read(path)

    def signer_of(access_key: str) -> Signer | None:
        nonlocal read_at_ns, signers
        try:
            if path.stat().st_mtime_ns != read_at_ns:
                read_at_ns, signers = _read(path)
        except (OSError, StartError):
            pass  # the accounts that were read last stay valid until the file can be read again
        return signers.get(access_key)

    return signer_of


def _read(path: Path) -> tuple[int, dict[str, Signer]]:
    try:
        changed_ns = path.stat().st_mtime_ns
        document = yaml.safe_load(path.read_bytes()) or {}
        rows = document.get("accounts") or []
        return changed_ns, {str(row["accessKey"]): Signer(str(row["secretKey"]).encode()) for row in rows}
    except OSError as error:
        raise StartError(f"aclEnable: {path}: {reason(error)}") from error
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise StartError(f"aclEnable: {path}: it has no list of accounts with accessKey and secretKey") from error
