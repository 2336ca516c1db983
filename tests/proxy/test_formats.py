"""Formats that the front shares with others: the interface's definition, and the choice of a queue by a message group."""

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from pocketmq.proxy.calls.sending import consistent_hash
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.service import SERVICE, rpcs
from pocketmq.store.format.java_hash import java_hash


def without_json_names(messages):
    """Remove the names in JSON, which protoc derives and leaves out of modules."""
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        without_json_names(message.nested_type)


def test_the_compiled_definition_is_that_of_the_proto_file(tmp_path):
    folder, made = Path(pb.__file__).parent, tmp_path / "set"
    well_known = Path(protoc.__file__).parent / "_proto"
    arguments = [f"-I{folder}", f"-I{well_known}", f"--descriptor_set_out={made}", str(folder / "messaging.proto")]
    assert protoc.main(["protoc", *arguments]) == 0
    (fresh,) = FileDescriptorSet.FromString(made.read_bytes()).file
    without_json_names(fresh.message_type)
    compiled = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(compiled)
    fresh.name = compiled.name
    assert fresh == compiled


def test_every_rpc_of_the_definition_is_served():
    methods = pb.DESCRIPTOR.services_by_name["MessagingService"].methods
    served = {path: rpc.is_stream for path, rpc in rpcs(None).items()}  # type: ignore[arg-type]
    assert served == {f"/{SERVICE}/{method.name}": method.client_streaming for method in methods}


BUCKETS = (1, 2, 3, 8, 16, 1024)
GUAVA = {
    0: (0, 0, 0, 0, 0, 0),
    1: (0, 0, 0, 6, 6, 549),
    -1: (0, 1, 2, 7, 10, 313),
    2: (0, 0, 0, 6, 15, 338),
    31: (0, 1, 2, 7, 15, 436),
    97: (0, 0, 0, 0, 0, 346),
    12345: (0, 1, 1, 1, 1, 938),
    -12345: (0, 0, 0, 0, 0, 280),
    2147483647: (0, 0, 0, 0, 9, 231),
    -2147483648: (0, 1, 2, 2, 2, 185),
    "order-1": (0, 0, 0, 3, 3, 489),
    "group": (0, 0, 0, 0, 8, 391),
    "\u00fc": (0, 0, 0, 0, 12, 535),
}
"""Results of Guava's Hashing.consistentHash for numbers and for the hash codes of texts."""


@pytest.mark.parametrize("value", GUAVA)
def test_the_queue_of_a_message_group_is_the_one_that_apache_s_proxy_chooses(value):
    number = java_hash(value) if isinstance(value, str) else value
    assert tuple(consistent_hash(number, count) for count in BUCKETS) == GUAVA[value]
