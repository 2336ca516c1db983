"""Forms in which bodies are returned, as the options describe them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

STORED: Final = "stored"
JSON: Final = "json"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
BY_TOPIC: Final = "by topic"
# Types of decoded bodies without a schema: forms that `bodyDecoders` may name for a topic.
TEXT_TYPES: Final = {"plain": pa.binary(), "string": pa.string(), JSON: pa.string()}


@dataclass(frozen=True, slots=True)
class BodyForm:
    """The form of bodies that the options request.

    `kind` is the value of bodyAs. Bodies of a typed form become values of `arrow_type`, which is None as long as it
    has to be inferred from `samples` records.
    """

    kind: str = STORED
    is_typed: bool = False
    arrow_type: Any = None
    samples: int = 0
    schema: bytes = b""
    """For Avro the schema in JSON, for Protocol Buffers the descriptor set."""
    message: str = ""
    topics: tuple[tuple[str, "BodyForm"], ...] = ()
    """For the kind BY_TOPIC the form of each topic; a body is then a struct with one field for each of them."""

    @property
    def is_inferred(self) -> bool:
        """Whether the type still has to be inferred."""
        return self.is_typed and self.arrow_type is None

    @classmethod
    def by_topic(cls, forms: Mapping[str, "BodyForm"]) -> "BodyForm":
        """Return the form of bodies whose form depends on their topic. Its type is known once those of all topics are."""
        types = [(topic, form.arrow_type or TEXT_TYPES.get(form.kind)) for topic, form in forms.items()]
        is_known = not any(form.is_inferred for form in forms.values())
        return cls(BY_TOPIC, True, pa.struct(types) if is_known else None, topics=tuple(forms.items()))

    def typed(self, arrow_type: Any) -> "BodyForm":
        """Return the same form with a type that was inferred, or that a user's schema has."""
        return replace(self, is_typed=True, arrow_type=arrow_type)
