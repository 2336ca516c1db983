"""The official gRPC client for Java."""

from tests.interop.grpc.verdicts import test_case  # noqa: F401

CLIENT = "java"
