"""Typed codecs: from values of a declared Python type to bytes and back, exactly.

Imports `keygroups`, for keys as text. Knows no state, and no file.

>>> codec = codec_for(list[int])
>>> codec.decode(codec.encode([1, 2, 3]))
[1, 2, 3]
"""

from emberstate.codec.base import Codec
from emberstate.codec.compatibility import Verdict, compare
from emberstate.codec.migration import decoder_for
from emberstate.codec.opaque import OpaqueCodec, opaque_codec, opaque_timer_codec
from emberstate.codec.pickled import pickle_codec
from emberstate.codec.type_schema import FieldSchema, TypeSchema
from emberstate.codec.typed import codec_for, key_codec_for

__all__ = [
    "Codec",
    "FieldSchema",
    "OpaqueCodec",
    "TypeSchema",
    "Verdict",
    "codec_for",
    "compare",
    "decoder_for",
    "key_codec_for",
    "opaque_codec",
    "opaque_timer_codec",
    "pickle_codec",
]
