"""`pocketmq store rejoin`: a former master becomes a slave of the broker that took its place."""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

from pocketmq.store.disk.file_disk import FileDisk
from tests.broker.running import connected, running_broker, running_namesrv, until
from tests.broker.test_replication import SLAVE, SMALL_FILES, end_of, log_of, send


async def rejoin(root: Path, master: str, *options: str) -> tuple[int | None, str]:
    """Run the command; return its exit code and its output."""
    command = [sys.executable, "-m", "pocketmq", "store", "rejoin", str(root), "--master", master, "--yes", *options]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    return process.returncode, said.decode()


async def test_former_master_is_truncated_and_becomes_a_slave(tmp_path: Path) -> None:
    first = {**SMALL_FILES, "store_path_root_dir": str(tmp_path / "first")}
    second = {**SMALL_FILES, "store_path_root_dir": str(tmp_path / "second")}
    async with running_namesrv() as ns, connected() as client:
        async with running_broker(ns, store=first, disk=FileDisk()) as master:
            async with running_broker(ns, store={**second, **SLAVE}, disk=FileDisk(), broker_id=1) as slave:
                await send(client, master, 400)
                await until(lambda: end_of(slave) == end_of(master))
            parting = end_of(master)
            await send(client, master, 700)
            old_log = log_of(master)
        async with running_broker(ns, store=second, disk=FileDisk()) as promoted:
            await send(client, promoted, 300, size=120)
            code, said = await rejoin(tmp_path / "first", promoted.address)
            assert code == 0 and f"the logs differ from physical offset {parting} on" in said
            (saved,) = (tmp_path / "first" / "quarantine").glob(f"{parting:020}.*")
            assert saved.read_bytes() == old_log[parting:]
            code, said = await rejoin(tmp_path / "first", promoted.address)
            assert code == 0 and "nothing to do" in said
            async with running_broker(ns, store={**first, **SLAVE}, disk=FileDisk(), broker_id=1) as follows:
                await until(lambda: end_of(follows) == end_of(promoted))
                assert log_of(follows) == log_of(promoted)
                await until(lambda: follows.services.store.max_offset("T", 0) == 700)
                assert promoted.services.store.max_offset("T", 0) == 700


async def test_newer_log_of_a_slave_is_not_cut_back_to_an_older_copy(tmp_path: Path, caplog: Any) -> None:
    """The master is restarted on a copy of its store that lacks messages which the slave has."""
    first, copy, second = ({**SMALL_FILES, "store_path_root_dir": str(tmp_path / name)} for name in ("a", "copy", "b"))
    slave_of: dict[str, Any] = {"store": {**second, **SLAVE}, "broker_id": 1}
    async with running_namesrv() as ns, connected() as client:
        async with running_broker(ns, store=first, disk=FileDisk()) as master:
            await send(client, master, 400)
            port = master.port
            for store in (first, copy):  # not the port behind that of the broker, which another process may take meanwhile
                store["ha_listen_port"] = master.services.ha.port
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        async with running_broker(ns, store=first, disk=FileDisk(), listen_port=port) as master:
            parting = end_of(master)
            async with running_broker(ns, disk=FileDisk(), **slave_of) as slave:
                await send(client, master, 300)
                await until(lambda: end_of(slave) == end_of(master))
                whole = log_of(slave)
        async with running_broker(ns, store=copy, disk=FileDisk(), listen_port=port) as older:
            for count in (0, 20):  # before and after it takes messages of its own
                await send(client, older, count, size=120)
                caplog.clear()
                async with running_broker(ns, disk=FileDisk(), **slave_of) as slave:
                    older_text = f"the master's log is older than this one: they differ from {parting} on"
                    await until(lambda text=older_text: text in caplog.text)
                    assert "store rejoin" not in caplog.text
                code, said = await rejoin(tmp_path / "b", f"localhost:{port}")
                assert code == 4 and "the master's log is older than this one" in said
            shutil.copytree(tmp_path / "b", tmp_path / "given up")
            code, said = await rejoin(tmp_path / "given up", older.address, "--older-master")
            assert code == 0 and "saved in" in said
        async with running_broker(ns, store=second, disk=FileDisk()) as promoted:
            assert log_of(promoted) == whole
            await send(client, promoted, 5)
            code, said = await rejoin(tmp_path / "copy", promoted.address)
            assert code == 0 and f"the logs differ from physical offset {parting} on" in said


async def test_unreachable_master_is_reported(tmp_path: Path) -> None:
    async with (
        running_broker(store={"store_path_root_dir": str(tmp_path)}, disk=FileDisk()) as master,
        connected() as client,
    ):
        await send(client, master)
    code, said = await rejoin(tmp_path, "127.0.0.1:1")
    assert code == 3 and "master 127.0.0.1:1 does not answer" in said
