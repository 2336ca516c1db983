"""The official gRPC client for Node."""

from tests.interop.grpc.verdicts import test_case  # noqa: F401

CLIENT = "node"
