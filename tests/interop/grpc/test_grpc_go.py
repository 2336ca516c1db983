"""The official gRPC client for Go."""

from tests.interop.grpc.verdicts import test_case  # noqa: F401

CLIENT = "go"
