"""The official gRPC client for Python."""

from tests.interop.grpc.verdicts import test_case  # noqa: F401

CLIENT = "python"
