"""Forms in which bodies are returned, as the options describe them."""

from dataclasses import dataclass, replace
from typing import Any, Final

STORED: Final = "stored"
JSON: Final = "json"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"


@dataclass(frozen=True, slots=True)
class BodyForm:
    """What the options say about bodies.

    `kind` is the value of bodyAs. Bodies of a typed form become values of `arrow_type`, which is None as long as it
    has to be inferred from `samples` records.
    """

    kind: str = STORED
    is_typed: bool = False
    arrow_type: Any = None
    samples: int = 0
    schema: bytes = b""
    """Of Avro the schema in JSON, of Protocol Buffers the descriptor set."""
    message: str = ""

    @property
    def is_inferred(self) -> bool:
        """Whether the type is unknown yet."""
        return self.is_typed and self.arrow_type is None

    def typed(self, arrow_type: Any) -> "BodyForm":
        """Return the same form with a type that was inferred, or that a user's schema has."""
        return replace(self, is_typed=True, arrow_type=arrow_type)
