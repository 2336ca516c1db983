"""RouteInfoManager: brokers come, change and go."""

from namesrv_doubles import Connection, LivenessClock

from namesrv.route_info import BrokerIdentity, RouteInfoManager
from remoting.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper

A, A_SLAVE = BrokerIdentity("c", "a", "10.0.0.1:1", 0), BrokerIdentity("c", "a", "10.0.0.2:1", 1)
B = BrokerIdentity("c", "b", "10.0.0.3:1", 0)


def topics(*names, counter=1, **fields):
    table = {name: TopicConfig(name, 4, 4, 6, **fields) for name in names}
    return TopicConfigSerializeWrapper(table, DataVersion(counter, 5))


def tables():
    clock = LivenessClock()
    return RouteInfoManager(clock), clock


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


def test_a_slave_learns_its_master_and_tells_no_topics():
    routes, _ = tables()
    assert enter(routes, A_SLAVE, topics("OfSlave")) == (None, None)
    assert enter(routes, A) == (None, None)
    assert enter(routes, A_SLAVE, topics("OfSlave", counter=2)) == (A.address + "ha", A.address)
    assert routes.route("OfSlave") is None
    assert brokers_of(routes) == {"a": {"0": A.address, "1": A_SLAVE.address}}


def test_topics_are_taken_again_only_when_the_version_changed():
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


def test_the_last_broker_takes_its_topics_along():
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


def test_an_address_that_comes_with_another_id_is_moved():
    routes, _ = tables()
    enter(routes, A_SLAVE)
    enter(routes, A_SLAVE._replace(broker_id=0))
    assert brokers_of(routes) == {"a": {"0": A_SLAVE.address}}


def test_a_broker_silent_for_120_s_is_taken_out_and_its_connection_named():
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


def test_each_registration_and_each_matching_version_query_is_a_sign_of_life():
    routes, clock = tables()
    enter(routes, A)
    clock.now += 100
    enter(routes, A)
    clock.now += 100
    routes.touch(A.address)
    routes.touch("nobody")
    clock.now += 100
    assert routes.expire() == []


def test_a_closed_connection_takes_out_its_broker_but_not_one_that_came_back_by_another():
    routes, _ = tables()
    old, new = Connection(), Connection()
    enter(routes, A, channel=old)
    enter(routes, A, channel=new)
    routes.channel_closed(old)
    assert brokers_of(routes) == {"a": {"0": A.address}}
    routes.channel_closed(new)
    assert brokers_of(routes) is None


def test_a_broker_that_moved_is_not_harmed_by_the_end_of_its_old_connection():
    routes, _ = tables()
    old, moved = Connection(), A._replace(address="10.0.0.9:1")
    enter(routes, A, channel=old)
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
    assert routes.topics_by_flag(lambda flag: flag & 1 != 0) == ["unit", "both"]


def test_filter_servers_are_in_the_route_of_their_broker():
    routes, _ = tables()
    routes.register(A, "", topics("T"), ["10.0.0.1:9"], None)
    assert routes.route("T").filter_server_table == {A.address: ["10.0.0.1:9"]}
