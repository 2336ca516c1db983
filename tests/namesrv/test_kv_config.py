"""KV config, and kvConfig.json in Apache's format."""

import asyncio
import contextlib
import errno
import json
import threading

import pytest

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.kv_config import KVConfigManager, KVLimitError
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.route import KVConfigKeyRequestHeader, PutKVConfigRequestHeader
from pocketmq.runtime import atomic_file
from pocketmq.runtime.clock import SystemClock
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn
from tests.patience import PATIENCE_S


def test_values_survive_a_restart_in_apaches_format(tmp_path):
    path = tmp_path / "namesrv" / "kvConfig.json"
    manager = KVConfigManager(NamesrvConfig(kv_config_path=str(path)))
    manager.load()
    manager.put("ORDER_TOPIC_CONFIG", "T", "a:4;b:4")
    manager.put("ns", "键", "值")
    manager.snapshot()()
    assert json.loads(path.read_bytes()) == {"configTable": {"ORDER_TOPIC_CONFIG": {"T": "a:4;b:4"}, "ns": {"键": "值"}}}
    again = KVConfigManager(NamesrvConfig(kv_config_path=str(path)))
    again.load()
    assert (again.get("ns", "键"), again.namespace("ORDER_TOPIC_CONFIG")) == ("值", {"T": "a:4;b:4"})
    again.delete("ns", "键")
    again.snapshot()()
    assert json.loads(path.read_bytes())["configTable"]["ns"] == {}


def test_unwritable_change_has_no_effect(tmp_path):
    (tmp_path / "file").write_text("")
    manager = KVConfigManager(NamesrvConfig(kv_config_path=str(tmp_path / "file" / "kvConfig.json")))
    manager.put("ns", "k", "v")
    with pytest.raises(OSError) as failure:
        manager.snapshot()()
    manager.written(failure.value)
    assert manager.get("ns", "k") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"configTable":{"ns":{"k":1}}}'])
def test_error_for_an_unreadable_file_names_the_file(tmp_path, text):
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="kvConfig.json"):
        KVConfigManager(NamesrvConfig(kv_config_path=str(path))).load()


def test_backup_is_used_when_the_file_is_truncated(tmp_path):
    path = tmp_path / "kvConfig.json"
    manager = KVConfigManager(NamesrvConfig(kv_config_path=str(path)))
    for value in ("old", "new"):
        manager.put("ns", "k", value)
        manager.snapshot()()
    path.write_text('{"confi')
    again = KVConfigManager(NamesrvConfig(kv_config_path=str(path)))
    again.load()
    assert again.get("ns", "k") == "old"


# --- with a running name server: writes outside the event loop, grouped writes, limits ----------------------------


class Disk:
    """Wraps `atomic_file.replace`: counts its calls, blocks until `is_free` is set, and raises ENOSPC if `is_refusing`."""

    def __init__(self, monkeypatch):
        self.count, self.threads, self.is_refusing = 0, set(), False
        self.is_free = threading.Event()
        self.is_free.set()
        replace = atomic_file.replace

        def counted(path, data):
            self.count += 1
            self.threads.add(threading.get_ident())
            assert self.is_free.wait(PATIENCE_S)
            if self.is_refusing:
                raise OSError(errno.ENOSPC, "No space left on device", str(path) + ".tmp")
            replace(path, data)

        monkeypatch.setattr(atomic_file, "replace", counted)


@contextlib.asynccontextmanager
async def running(path, **config):
    """Run a name server with that file; yield `call(code, header)`, which sends it a request."""
    loop = asyncio.get_running_loop()
    server = NameServer(NamesrvConfig(listen_port=0, kv_config_path=str(path), **config))
    await server.start()
    client = RemotingClient(Turn(loop), Timers(SystemClock(), loop))
    try:
        yield lambda code, header: client.invoke(f"127.0.0.1:{server.port}", code, header, b"", 15.0)
    finally:
        await client.close()
        await server.stop()


def put(call, key, value="v"):
    return asyncio.ensure_future(call(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader("ns", key, value)))


async def test_concurrent_puts_share_writes_off_the_loop_and_wait_for_them(tmp_path, monkeypatch):
    disk, path = Disk(monkeypatch), tmp_path / "kvConfig.json"
    async with running(path) as call:
        disk.is_free.clear()
        going = [put(call, "first")]
        async with asyncio.timeout(PATIENCE_S):
            while not disk.count:
                await asyncio.sleep(0.002)
        going += [put(call, f"k{n}") for n in range(300)]
        found = await call(RequestCode.GET_KV_CONFIG, KVConfigKeyRequestHeader("ns", "nothing"))
        assert found.code == ResponseCode.QUERY_NOT_FOUND, "others are served while the disk is stuck"
        assert not any(one.done() for one in going)
        disk.is_free.set()
        assert {answer.code for answer in await asyncio.gather(*going)} == {0}
        assert disk.count < 10, "on a busy machine the requests arrive in several turns"
        assert threading.main_thread().ident not in disk.threads
        assert len(json.loads(path.read_bytes())["configTable"]["ns"]) == 301


async def test_unwritable_value_is_refused_and_undone(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    async with running(tmp_path / "kvConfig.json") as call:
        assert (await put(call, "k", "old")).code == 0
        disk.is_refusing = True
        for answer in (
            await put(call, "k", "new"),
            await put(call, "l"),
            await call(RequestCode.DELETE_KV_CONFIG, KVConfigKeyRequestHeader("ns", "k")),
        ):
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "kvConfig.json cannot be written (No space left on device)" in answer.remark
        found = await call(RequestCode.GET_KV_CONFIG, KVConfigKeyRequestHeader("ns", "k"))
        assert found.ext["value"] == "old"
        disk.is_refusing = False
        assert (await put(call, "m")).code == 0
    assert json.loads((tmp_path / "kvConfig.json").read_bytes())["configTable"]["ns"] == {"k": "old", "m": "v"}


async def test_values_entries_and_total_size_are_limited(tmp_path):
    path = tmp_path / "kvConfig.json"
    async with running(path, max_kv_value_bytes=100, max_kv_entries=3, max_kv_total_bytes=250) as call:
        answer = await put(call, "k", "é" * 51)
        assert answer.code == ResponseCode.SYSTEM_ERROR and "maxKvValueBytes=100: the value has 102" in answer.remark
        assert (await put(call, "a", "x" * 100)).code == 0 and (await put(call, "b", "x" * 100)).code == 0
        answer = await put(call, "c", "x" * 100)
        assert answer.code == ResponseCode.SYSTEM_ERROR and "maxKvTotalBytes=250" in answer.remark
        assert (await put(call, "c", "x")).code == 0
        answer = await put(call, "d", "x")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "maxKvEntries=3" in answer.remark
        assert (await put(call, "a", "y")).code == 0, "an existing entry may be changed"
        assert (await call(RequestCode.DELETE_KV_CONFIG, KVConfigKeyRequestHeader("ns", "b"))).code == 0
        assert (await put(call, "d", "x")).code == 0
    async with running(path, max_kv_entries=1) as call:
        found = await call(RequestCode.GET_KV_CONFIG, KVConfigKeyRequestHeader("ns", "d"))
        assert found.ext["value"] == "x", "existing entries beyond the limit are kept"
        assert (await put(call, "d", "y")).code == 0


def test_empty_namespaces_are_kept_up_to_a_limit():
    manager = KVConfigManager(NamesrvConfig(kv_config_path="", max_kv_entries=3))
    for namespace in "abc":
        manager.put(namespace, "k", "v")
        manager.delete(namespace, "k")
    with pytest.raises(KVLimitError, match="maxKvEntries=3: there are 3 namespaces"):
        manager.put("d", "k", "v")
    manager.put("a", "k", "v")
    assert manager.namespace("a") == {"k": "v"}


async def test_use_of_the_backup_is_logged_and_keeps_the_backup(tmp_path, caplog):
    path = tmp_path / "kvConfig.json"
    path.write_text('{"confi')
    path.with_name("kvConfig.json.bak").write_text('{"configTable":{"ns":{"k":"v"}}}')
    async with running(path) as call:
        assert "kvConfig.json cannot be read" in caplog.text
        assert (await put(call, "l")).code == 0
    assert json.loads(path.with_name("kvConfig.json.bak").read_bytes())["configTable"]["ns"] == {"k": "v"}
