"""MQError, the base class of the errors that a client raises for anything but wrong arguments and wrong use.

    MQError
      RemotingError           a server refused the request: its code and remark (remoting.dispatch)
      BrokerUnreachable       no connection to a broker; also a ConnectionError (client.client_instance)
      NameServerUnreachable   no name server answers; also a ConnectionError
      ChannelClosed           the connection closed before the answer came; also a ConnectionError (remoting.channels)
      RequestTimeout          no answer, or no reply to a request message, in time; also a TimeoutError
      BatchError              a part of a list of messages is sent (client.sending.outgoing)

Those that are also Python's own errors can be caught as before, with OSError or TimeoutError.
"""

from typing import Self


class MQError(Exception):
    """Base of all errors of servers and connections. Wrong arguments raise TypeError or ValueError instead."""


class RequestTimeout(MQError, TimeoutError):
    """No answer or reply came in time; the server may have carried out the request."""

    @classmethod
    def of(cls, address: str, code: int, timeout_s: float) -> Self:
        """Return the error of a request code that a server did not answer."""
        return cls(f"no answer from {address} to code {code} within {timeout_s:g} s")


class NameServerUnreachable(MQError, ConnectionError):
    """None of the name servers answers."""
