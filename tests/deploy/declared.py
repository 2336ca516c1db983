"""The keys that the servers declare, to compare with those that the files in deploy/ set."""

from pocketmq.cli.settings import BROKER_CLASSES, NAMESRV_CLASSES
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.proxy.config import ProxyConfig
from pocketmq.remoting.tls import TlsConfig
from pocketmq.runtime import config_file
from pocketmq.runtime.config import items_of
from pocketmq.runtime.log import LogConfig


def _keys(*classes):
    return {key for one in classes for key in items_of(one)}


NAMESRV_PORT = NamesrvConfig().listen_port
BROKER_KEYS = _keys(*BROKER_CLASSES, LogConfig)
NAMESRV_KEYS = _keys(*NAMESRV_CLASSES, LogConfig)
PROXY_KEYS = _keys(ProxyConfig, TlsConfig, LogConfig)


def keys_of(text):
    """Return the keys that the text of a config file sets."""
    return set(config_file.parse(text))
