"""`pocketmq topic|group|dlq VERB` at Apache's servers of 4.9.4 and 5.5.0: the cases of tests/pocketmq/test_verbs.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import apache_cluster
from tests.interop.servers import Apache, Cluster
from tests.interop.wire import Connection
from tests.pocketmq import verb_cases
from tests.pocketmq.verb_cases import Verbs
from tests.support.amount import IS_LONG


@pytest.fixture(scope="module", params=["4.9.4", "5.5.0"] if IS_LONG else ["5.5.0"])
def apaches(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with apache_cluster(tmp_path_factory.mktemp(f"apache-{request.param}"), request.param) as running:
        yield running


@pytest.fixture
def verbs(apaches: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verbs:
    return Verbs(apaches.namesrv_address, capsys, monkeypatch)


@pytest.fixture
def connection(apaches: Cluster) -> Iterator[Connection]:
    with Connection(apaches.broker_address) as opened:
        yield opened


def is_5(cluster: Cluster) -> bool:
    return isinstance(cluster.flavour, Apache) and not cluster.flavour.is_4


def test_topics(verbs: Verbs, connection: Connection, apaches: Cluster) -> None:
    verb_cases.topics(verbs, connection, with_types=is_5(apaches))


def test_groups(verbs: Verbs, connection: Connection, apaches: Cluster) -> None:
    verb_cases.groups(verbs, connection, single_queues=is_5(apaches))


def test_resets_of_an_offline_group(verbs: Verbs, connection: Connection) -> None:
    verb_cases.resets_of_an_offline_group(verbs, connection)


def test_dead_letters(verbs: Verbs, connection: Connection, tmp_path: Path) -> None:
    verb_cases.dead_letters(verbs, connection, tmp_path)
