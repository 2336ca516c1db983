"""RouteInfoManager: registration, change and removal of brokers."""

import time
import tracemalloc

import pytest

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.live_broker import BrokerIdentity
from pocketmq.namesrv.register_limits import RegistrationRefused
from pocketmq.namesrv.route_info import RouteInfoManager
from pocketmq.remoting.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from pocketmq.remoting.codes import ResponseCode
from tests.namesrv.namesrv_doubles import Connection, LivenessClock
from tests.support.memory import traced_memory

A, A_SLAVE = BrokerIdentity("c", "a", "10.0.0.1:1", 0), BrokerIdentity("c", "a", "10.0.0.2:1", 1)
B = BrokerIdentity("c", "b", "10.0.0.3:1", 0)


def topics(*names, counter=1, **fields):
    table = {name: TopicConfig(name, 4, 4, 6, **fields) for name in names}
    return TopicConfigSerializeWrapper(table, DataVersion(counter, 5))


def tables(**config):
    clock = LivenessClock()
    return RouteInfoManager(clock, NamesrvConfig(**config)), clock


def enter(routes, identity, wrapper=None, channel=None, **options):
    return routes.register(identity, identity.address + "ha", wrapper or topics("T"), [], channel, **options)


def brokers_of(routes, topic="T"):
    route = routes.route(topic)
    return None if route is None else {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}


def test_a_route_has_the_queues_and_addresses_of_all_brokers():
    routes, _ = tables()
    enter(routes, A)
    enter(routes, B)
    route = routes.route("T")
    assert brokers_of(routes) == {"a": {"0": A.address}, "b": {"0": B.address}}
    assert [(queue.broker_name, queue.read_queue_nums, queue.perm) for queue in route.queue_datas] == [
        ("a", 4, 6),
        ("b", 4, 6),
    ]
    assert routes.route("U") is None


def test_slave_gets_its_master_and_registers_no_topics():
    routes, _ = tables()
    assert enter(routes, A_SLAVE, topics("OfSlave")) == (None, None)
    assert enter(routes, A) == (None, None)
    assert enter(routes, A_SLAVE, topics("OfSlave", counter=2)) == (A.address + "ha", A.address)
    assert routes.route("OfSlave") is None
    assert brokers_of(routes) == {"a": {"0": A.address, "1": A_SLAVE.address}}


def test_topics_are_updated_only_when_the_version_changes():
    routes, _ = tables()
    enter(routes, A, topics("T"))
    enter(routes, A, topics("T", "U"))
    assert routes.route("U") is None
    enter(routes, A, topics("T", "U", counter=2))
    assert routes.route("U") is not None


def test_wiped_write_permission_lasts_until_the_topics_change():
    routes, _ = tables()
    enter(routes, A, topics("T", "U"))
    assert routes.wipe_write_perm("a") == 2
    assert routes.wipe_write_perm("nobody") == 0
    enter(routes, A, topics("T", "U"))
    assert [queue.perm for queue in routes.route("T").queue_datas] == [4]
    assert routes.add_write_perm("a") == 2
    assert [queue.perm for queue in routes.route("T").queue_datas] == [6]
    routes.wipe_write_perm("a")
    enter(routes, A, topics("T", "U", counter=2))
    assert [queue.perm for queue in routes.route("T").queue_datas] == [6]


def test_topics_are_removed_with_their_last_broker():
    routes, _ = tables()
    enter(routes, A)
    enter(routes, B, topics("T", "OnlyB"))
    routes.unregister(B)
    assert brokers_of(routes) == {"a": {"0": A.address}}
    assert (routes.topics(), routes.clusters(), list(routes.brokers())) == (["T"], {"c": ["a"]}, ["a"])
    routes.unregister(A)
    routes.unregister(A)
    assert (routes.topics(), routes.clusters(), routes.brokers()) == ([], {}, {})


def test_a_slave_keeps_the_topics_of_its_lost_master():
    routes, _ = tables()
    enter(routes, A)
    enter(routes, A_SLAVE)
    routes.unregister(A)
    assert brokers_of(routes) == {"a": {"1": A_SLAVE.address}}


def test_address_registered_with_another_id_moves_to_it():
    routes, _ = tables()
    enter(routes, A_SLAVE)
    enter(routes, A_SLAVE._replace(broker_id=0))
    assert brokers_of(routes) == {"a": {"0": A_SLAVE.address}}


def test_broker_silent_for_120_s_is_removed_and_its_connection_returned():
    routes, clock = tables()
    connection = Connection()
    enter(routes, A, channel=connection)
    enter(routes, B, expired_s=1000.0)
    clock.now += 120
    assert routes.expire() == []
    clock.now += 0.001
    assert routes.expire() == [connection]
    assert brokers_of(routes) == {"b": {"0": B.address}}
    assert routes.expire() == []


def test_registration_and_matching_version_query_count_as_heartbeats():
    routes, clock = tables()
    enter(routes, A)
    clock.now += 100
    enter(routes, A)
    clock.now += 100
    routes.touch(A.address)
    routes.touch("nobody")
    clock.now += 100
    assert routes.expire() == []


def test_closed_connection_removes_its_broker_unless_it_reconnected():
    routes, _ = tables()
    old, new = Connection(), Connection()
    enter(routes, A, channel=old)
    enter(routes, A, channel=new)
    routes.channel_closed(old)
    assert brokers_of(routes) == {"a": {"0": A.address}}
    routes.channel_closed(new)
    assert brokers_of(routes) is None


def test_end_of_the_old_connection_does_not_remove_a_moved_broker():
    routes, clock = tables()
    old, moved = Connection(), A._replace(address="10.0.0.9:1")
    enter(routes, A, channel=old)
    clock.now += 76  # the broker is frozen, or its machine lost power
    enter(routes, moved, topics("T"), channel=Connection())
    routes.channel_closed(old)
    assert brokers_of(routes) == {"a": {"0": moved.address}}


def test_topics_are_deleted_everywhere_or_in_one_cluster():
    routes, _ = tables()
    enter(routes, A)
    enter(routes, B._replace(cluster="d"))
    routes.delete_topic("T", "d")
    assert list(brokers_of(routes)) == ["a"]
    routes.delete_topic("T", "nowhere")
    routes.delete_topic("T", "c")
    assert routes.route("T") is None
    enter(routes, A, topics("T", counter=2))
    routes.delete_topic("T", None)
    routes.delete_topic("T", None)
    assert routes.topics() == []


def test_lists_by_cluster_and_by_flag():
    routes, _ = tables()
    wrapper = topics("plain", "unit", "sub", "both")
    for name, flag in {"unit": 1, "sub": 2, "both": 3}.items():
        wrapper.topic_config_table[name].topic_sys_flag = flag
    enter(routes, A, wrapper)
    enter(routes, B._replace(cluster="d"), topics("plain", "other"))
    assert routes.topics_of_cluster("d") == ["plain", "other"]
    assert routes.topics_of_cluster("nowhere") == []
    assert routes.topics_by_flag(1, 1) == ["unit", "both"]


def test_filter_servers_are_in_the_route_of_their_broker():
    routes, _ = tables()
    routes.register(A, "", topics("T"), ["10.0.0.1:9"], None)
    assert routes.route("T").filter_server_table == {A.address: ["10.0.0.1:9"]}


# --- two brokers with the same name and id --------------------------------------------------------------------------

TAKEN = [
    pytest.param(A._replace(address="10.0.0.9:1"), id="the name and id"),
    pytest.param(A, id="name, id and address"),
    pytest.param(A._replace(broker_name="other"), id="the address"),
]


@pytest.mark.parametrize("second", TAKEN)
def test_second_broker_with_identity_or_address_of_a_living_one_is_refused(second):
    routes, clock = tables()
    first, stranger = Connection(), Connection("10.0.0.9")
    enter(routes, A, channel=first)
    for _ in range(3):
        clock.now += 29
        with pytest.raises(RegistrationRefused, match="two living brokers.*refuseSecondBroker"):
            enter(routes, second, topics("T", "U", counter=9), channel=stranger)
        routes.channel_closed(stranger)
        assert brokers_of(routes) == {"a": {"0": A.address}}
        assert routes.topics() == ["T"]
        enter(routes, A, channel=first)


@pytest.mark.parametrize("second", TAKEN)
def test_second_broker_takes_over_when_the_first_is_silent_or_disconnected(second):
    for is_silent in (True, False):
        routes, clock = tables()
        first, taker = Connection(), Connection("10.0.0.9")
        enter(routes, A, channel=first)
        if is_silent:
            clock.now += 76
        else:
            first.close()
            routes.channel_closed(first)
        enter(routes, second, channel=taker)
        assert brokers_of(routes) == {second.broker_name: {"0": second.address}}
        routes.channel_closed(first)
        assert brokers_of(routes) == {second.broker_name: {"0": second.address}}
        routes.channel_closed(taker)
        assert (routes.topics(), routes.brokers(), routes.clusters()) == ([], {}, {})


def test_restarted_broker_is_accepted_at_once():
    """Its old connection may not have closed yet."""
    routes, _ = tables()
    enter(routes, A, channel=Connection())
    enter(routes, A, channel=Connection())


def test_master_elected_by_a_controller_takes_over_at_once():
    routes, _ = tables()
    enter(routes, A, channel=Connection())
    newer = TopicConfigSerializeWrapper({}, DataVersion(1, 5, 2))
    enter(routes, A._replace(address="10.0.0.9:1"), newer, channel=Connection("10.0.0.9"))
    assert brokers_of(routes) == {"a": {"0": "10.0.0.9:1"}}


def test_connection_of_a_master_that_is_superseded_is_reported_and_it_cannot_return():
    routes, _ = tables()
    first, closed = Connection(), []
    routes.superseded.subscribe(closed.append)
    enter(routes, A, channel=first)
    promoted = A._replace(address="10.0.0.9:1")
    enter(routes, promoted, TopicConfigSerializeWrapper({}, DataVersion(1, 5, 1)), channel=Connection("10.0.0.9"))
    assert closed == [first]
    with pytest.raises(RegistrationRefused, match="higher state version") as refused:
        enter(routes, A, topics("T", counter=2), channel=Connection())
    assert refused.value.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    assert brokers_of(routes) == {"a": {"0": promoted.address}}


@pytest.mark.parametrize("second", [A_SLAVE._replace(address="10.0.0.9:1"), A_SLAVE._replace(broker_name="other")])
def test_second_slave_or_a_broker_of_another_name_does_not_take_over_by_its_state_version(second):
    routes, _ = tables()
    enter(routes, A_SLAVE, channel=Connection())
    with pytest.raises(RegistrationRefused, match="two living brokers"):
        enter(routes, second, TopicConfigSerializeWrapper({}, DataVersion(1, 5, 2)), channel=Connection("10.0.0.9"))


def test_second_broker_takes_over_if_configured_as_in_apache(caplog):
    routes, _ = tables(refuse_second_broker=False)
    enter(routes, A, channel=Connection())
    enter(routes, A._replace(address="10.0.0.9:1"), channel=Connection("10.0.0.9"))
    assert brokers_of(routes) == {"a": {"0": "10.0.0.9:1"}}
    assert "two living brokers" in caplog.text and "takes over" in caplog.text


def test_living_broker_is_unregistered_only_from_its_own_host():
    routes, clock = tables()
    enter(routes, A, channel=Connection())
    with pytest.raises(RegistrationRefused, match="connected from 10.0.0.1"):
        routes.unregister_by(A, Connection("10.0.0.9"))
    routes.unregister_by(A._replace(broker_name="other"), Connection())
    assert brokers_of(routes) == {"a": {"0": A.address}}
    clock.now += 76
    routes.unregister_by(A, Connection("10.0.0.9"))
    assert brokers_of(routes) is None


def test_renamed_broker_leaves_no_old_names_or_topics():
    routes, _ = tables()
    for number in range(9):
        enter(routes, A._replace(broker_name=f"name{number}"), topics(f"T{number}"), channel=None)
    assert (list(routes.brokers()), routes.topics()) == (["name8"], ["T8"])


def test_a_master_that_becomes_a_slave_keeps_its_topics():
    routes, _ = tables()
    enter(routes, A)
    enter(routes, A._replace(broker_id=1))
    assert brokers_of(routes) == {"a": {"1": A.address}}


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "identity", "wrapper", "said"),
    [
        ({"register_brokers_max": 1}, B, None, "2 brokers: registerBrokersMax=1 is the limit"),
        ({"register_clusters_max": 1}, B._replace(cluster="d"), None, "2 clusters: registerClustersMax=1 is the limit"),
        ({"register_topics_max": 2}, B, topics("1", "2", "3"), "3 topics: registerTopicsMax=2 is the limit"),
        ({"route_rows_max": 3}, B, topics("1", "2", "3"), "4 rows of the route table: routeRowsMax=3 is the limit"),
        ({}, B._replace(broker_name="n" * 601), None, "has 601 characters: registerNameSizeMax=600 is the limit"),
        ({}, B._replace(cluster="n" * 601), None, "registerNameSizeMax"),
        ({}, B._replace(address="n" * 601), None, "registerNameSizeMax"),
        ({}, B, topics("t" * 601), "topic 'ttt"),
        ({}, B, TopicConfigSerializeWrapper({"t": TopicConfig("t", 4, 4, -1)}), "perm=-1"),
        ({}, B, topics("t", topic_sys_flag=1 << 40), "topicSysFlag=1099511627776"),
        (
            {"register_queues_max": 9},
            B,
            TopicConfigSerializeWrapper({"t": TopicConfig("t", 4, 10)}),
            "topic 't': writeQueueNums=10: registerQueuesMax=9 is the limit",
        ),
    ],
)
def test_registration_beyond_a_limit_is_refused_as_a_whole(config, identity, wrapper, said):
    routes, _ = tables(**config)
    enter(routes, A, topics("T"))
    with pytest.raises(RegistrationRefused) as refused:
        enter(routes, identity, wrapper)
    assert said in str(refused.value) and len(str(refused.value)) < 300
    assert (list(routes.brokers()), routes.topics(), routes.clusters()) == (["a"], ["T"], {"c": ["a"]})
    enter(routes, A, topics("T", counter=2))


@pytest.mark.parametrize(
    ("servers", "said"), [(["s"] * 17, "17 filter servers: registerFilterServersMax=16"), (["s" * 601], "filter server")]
)
def test_filter_servers_have_limits(servers, said):
    routes, _ = tables()
    with pytest.raises(RegistrationRefused, match=said):
        routes.register(A, "", topics("T"), servers, None)


def test_topics_no_longer_sent_make_room_for_new_ones():
    routes, _ = tables(register_topics_max=3, route_rows_max=3)
    for number in range(9):
        enter(routes, A, topics(f"T{number}", counter=number))
    assert len(routes.topics()) == 3 and "T8" in routes.topics()
    enter(routes, A, topics("x", "y", "z", counter=99))
    assert sorted(routes.topics()) == ["x", "y", "z"]


def test_many_brokers_of_one_connection_are_removed_in_linear_time():
    def close_s(count):
        routes, _ = tables(register_brokers_max=count)
        connection = Connection()
        for number in range(count):
            identity = BrokerIdentity("c", f"b{number}", f"10.0.0.1:{number}", 0)
            enter(routes, identity, topics(f"T{number}"), channel=connection)
        began_s = time.process_time()
        routes.channel_closed(connection)
        assert routes.topics() == []
        return time.process_time() - began_s

    close_s(100)
    small_s = min(close_s(500) for _ in range(3))
    assert min(close_s(2000) for _ in range(3)) < 9 * small_s, "four times as many"


def test_memory_of_removed_brokers_is_freed():
    routes, _ = tables()
    enter(routes, A)
    connection = Connection()
    tracemalloc.start()
    try:
        before = traced_memory()
        for number in range(4):
            broker = BrokerIdentity("c", f"x{number}", f"10.0.0.9:{number}", 0)
            enter(routes, broker, topics(*(f"{number}-{index}" for index in range(5_000))), connection)
        routes.channel_closed(connection)
        after = traced_memory()
    finally:
        tracemalloc.stop()
    assert routes.topics() == ["T"]
    assert after - before < 150_000


# --- acting masters -----------------------------------------------------------------------------------------------------

A_SLAVE_2 = BrokerIdentity("c", "a", "10.0.0.4:1", 2)


def with_acting_master(**config):
    """Return (routes, clock, changes of the smallest id) of three 5.x brokers of one name with enableSlaveActingMaster."""
    routes, clock = tables(**{"support_acting_master": True} | config)
    changes = []
    routes.min_broker_id_changed.subscribe(lambda change, notified: changes.append((change, notified)))
    for identity in (A, A_SLAVE, A_SLAVE_2):
        enter(routes, identity, enable_acting_master=True)
    return routes, clock, changes


def test_the_slave_with_the_smallest_id_is_shown_as_a_read_only_master():
    routes, _, _ = with_acting_master()
    assert brokers_of(routes) == {"a": {"0": A.address, "1": A_SLAVE.address, "2": A_SLAVE_2.address}}
    assert [queue.perm for queue in routes.route("T").queue_datas] == [6]
    routes.unregister(A)
    assert brokers_of(routes) == {"a": {"0": A_SLAVE.address, "2": A_SLAVE_2.address}}
    assert [queue.perm for queue in routes.route("T").queue_datas] == [4]
    assert routes.broker_addresses("a") == {"1": A_SLAVE.address, "2": A_SLAVE_2.address}, "brokers are told the real ids"
    routes.unregister(A_SLAVE)
    assert brokers_of(routes) == {"a": {"0": A_SLAVE_2.address}}


def test_a_master_that_returns_is_shown_again_and_takes_messages():
    routes, _, _ = with_acting_master()
    routes.unregister(A)
    enter(routes, A_SLAVE, enable_acting_master=True)
    enter(routes, A, enable_acting_master=True)
    assert brokers_of(routes) == {"a": {"0": A.address, "1": A_SLAVE.address, "2": A_SLAVE_2.address}}
    assert [queue.perm for queue in routes.route("T").queue_datas] == [6]


@pytest.mark.parametrize(("supported", "enabled"), [(False, True), (True, False), (True, None)])
def test_slave_is_shown_as_master_only_if_name_server_and_brokers_enable_it(supported, enabled):
    routes, _ = tables(support_acting_master=supported)
    enter(routes, A, enable_acting_master=enabled)
    enter(routes, A_SLAVE, enable_acting_master=enabled)
    routes.unregister(A)
    assert brokers_of(routes) == {"a": {"1": A_SLAVE.address}}


def test_topics_of_a_slave_without_master_are_registered_as_read_only():
    routes, _ = tables(support_acting_master=True)
    enter(routes, A_SLAVE_2, topics("Old"), enable_acting_master=True)
    enter(routes, A_SLAVE, topics("T", "U"), enable_acting_master=True)
    assert brokers_of(routes, "U") == {"a": {"0": A_SLAVE.address, "2": A_SLAVE_2.address}}
    assert [queue.perm for queue in routes.route("U").queue_datas] == [4]
    enter(routes, A_SLAVE_2, topics("NotOfTheFirst", counter=2), enable_acting_master=True)
    assert routes.route("NotOfTheFirst") is None
    enter(routes, A, topics("T", "U"), enable_acting_master=True)
    assert [queue.perm for queue in routes.route("U").queue_datas] == [6]


def test_route_of_the_sync_broker_member_topic_has_the_real_ids():
    routes, _ = tables(support_acting_master=True)
    enter(routes, A_SLAVE, topics("rmq_sys_SYNC_BROKER_MEMBER_a", "T"), enable_acting_master=True)
    assert brokers_of(routes, "rmq_sys_SYNC_BROKER_MEMBER_a") == {"a": {"1": A_SLAVE.address}}
    assert brokers_of(routes, "T") == {"a": {"0": A_SLAVE.address}}


def test_changes_of_the_smallest_id_are_announced_to_the_brokers_concerned():
    routes, clock, changes = with_acting_master()
    assert changes == []
    routes.unregister(A_SLAVE_2)
    enter(routes, A_SLAVE_2, enable_acting_master=True)
    assert changes == [], "neither was the smallest"
    routes.unregister(A)
    ((gone, notified),) = changes
    assert (gone.min_broker_id, gone.min_broker_addr, gone.offline_broker_addr) == (1, A_SLAVE.address, A.address)
    assert notified == [A_SLAVE.address, A_SLAVE_2.address]
    enter(routes, A, enable_acting_master=True)
    come, notified = changes[1]
    assert (come.min_broker_id, come.min_broker_addr, come.ha_broker_addr) == (0, A.address, A.address + "ha")
    assert (come.offline_broker_addr, notified) == (None, [A_SLAVE.address, A_SLAVE_2.address])
    enter(routes, A, enable_acting_master=True, expired_s=10.0)
    clock.now += 11
    routes.expire()
    assert (len(changes), changes[-1][0].offline_broker_addr) == (3, A.address)
