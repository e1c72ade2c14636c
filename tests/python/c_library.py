"""libagentcompile.so through ctypes, as a program that loads it late does."""

import ctypes
import os
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path

from compiled import PROGRAM

LIBRARY = Path(os.environ.get("AGENTCOMPILE_LIBRARY", PROGRAM.parent / "libagentcompile.so"))
OK, JOB_FAILED, WRONG_USAGE, BAD_INPUT, DEVICE_LOST, NOT_COMPILED = range(6)
STOP, LENGTH, INTERRUPTED = range(3)
ADD_SPECIAL, PARSE_SPECIAL = 1, 2


class LoadOptions(ctypes.Structure):
    _fields_ = [
        ("device", c_char_p),
        ("checkpoint", c_char_p),
        ("random_weights", c_int),
        ("seed", c_uint64),
        ("tokenizer", c_char_p),
        ("chat_template", c_char_p),
        ("cache_memory", c_size_t),
        ("cache_folder", c_char_p),
        ("cache_disk", c_size_t),
    ]


class Properties(ctypes.Structure):
    _fields_ = [
        ("vocabulary", c_int64),
        ("max_context", c_int64),
        ("has_tokenizer", c_int),
        ("has_chat_template", c_int),
        ("device", c_char * 128),
    ]


class Sampling(ctypes.Structure):
    _fields_ = [
        ("temperature", c_double),
        ("top_k", c_int64),
        ("top_p", c_double),
        ("min_p", c_double),
        ("seed", c_uint64),
        ("repeat_penalty", c_double),
        ("presence_penalty", c_double),
        ("frequency_penalty", c_double),
    ]


class Request(ctypes.Structure):
    _fields_ = [
        ("ids", POINTER(c_int64)),
        ("count", c_size_t),
        ("max_new_tokens", c_int64),
        ("sampling", POINTER(Sampling)),
        ("stop", POINTER(c_char_p)),
        ("stop_count", c_size_t),
        ("is_conversation", c_int),
    ]


class Piece(ctypes.Structure):
    _fields_ = [("text", c_void_p), ("bytes", c_size_t), ("token", c_int64)]


class RawAnswer(ctypes.Structure):
    _fields_ = [
        ("text", c_void_p),
        ("bytes", c_size_t),
        ("ids", POINTER(c_int64)),
        ("count", c_size_t),
        ("finish", c_int),
        ("prompt_tokens", c_int64),
        ("cached_tokens", c_int64),
        ("first_token_seconds", c_double),
        ("token_seconds", c_double),
    ]


ON_PIECE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Piece))

library = ctypes.CDLL(str(LIBRARY))  # its symbols are for this module alone
library.ac_version.restype = library.ac_last_error.restype = c_char_p
library.ac_free.restype = library.ac_free_answer.restype = None
library.ac_free.argtypes = [c_void_p]
library.ac_close.argtypes = library.ac_stop.argtypes = [c_void_p]
library.ac_truncate.argtypes = [c_void_p, c_int64]


def last_error() -> str:
    return library.ac_last_error().decode()


class Failed(Exception):
    def __init__(self, status):
        super().__init__(last_error())
        self.status = status


def check(status):
    if status != OK:
        raise Failed(status)


def ids_array(ids):
    return (c_int64 * len(ids))(*ids)


class Answer:
    def __init__(self, raw):
        self.text = ctypes.string_at(raw.text, raw.bytes).decode()
        self.ids = raw.ids[: raw.count]
        self.finish, self.prompt_tokens, self.cached = raw.finish, raw.prompt_tokens, raw.cached_tokens


class Model:
    def __init__(self, package, **options):
        self.handle = c_void_p()
        values = {name: os.fsencode(value) if isinstance(value, (str, Path)) else value for name, value in options.items()}
        check(library.ac_load(os.fsencode(package), byref(LoadOptions(**values)), byref(self.handle)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        check(library.ac_close(self.handle))

    def properties(self):
        properties = Properties()
        check(library.ac_describe(self.handle, byref(properties)))
        return properties

    def given_ids(self, function, *arguments):
        ids, count = POINTER(c_int64)(), c_size_t()
        check(function(self.handle, *arguments, byref(ids), byref(count)))
        result = ids[: count.value]
        library.ac_free(ctypes.cast(ids, c_void_p))
        return result

    def given_bytes(self, function, *arguments):
        text, size = c_void_p(), c_size_t()
        check(function(self.handle, *arguments, byref(text), byref(size)))
        result = ctypes.string_at(text, size.value)
        library.ac_free(text)
        return result

    def tokenize(self, text, flags=ADD_SPECIAL):
        text = text.encode()
        return self.given_ids(library.ac_tokenize, text, c_size_t(len(text)), flags)

    def detokenize(self, ids, with_special=0):
        return self.given_bytes(library.ac_detokenize, ids_array(ids), c_size_t(len(ids)), with_special).decode()

    def sampling(self, **changed):
        sampling = Sampling()
        check(library.ac_default_sampling(self.handle, byref(sampling)))
        for name, value in changed.items():
            setattr(sampling, name, value)
        return sampling

    def generate(self, ids, new_tokens, sampling=None, stop=(), is_conversation=0, on_piece=None):
        def hear(_, piece):
            text = ctypes.string_at(piece.contents.text, piece.contents.bytes).decode()
            return on_piece(text, piece.contents.token) or 0

        hear = ON_PIECE(hear) if on_piece else None
        stops = (c_char_p * len(stop))(*[text.encode() for text in stop])
        chosen = ctypes.pointer(sampling or self.sampling(temperature=0))
        request = Request(ids_array(ids), len(ids), new_tokens, chosen, stops, len(stop), is_conversation)
        raw = RawAnswer()
        check(library.ac_generate(self.handle, byref(request), hear, None, byref(raw)))
        answer = Answer(raw)
        library.ac_free_answer(byref(raw))
        assert not raw.text and not raw.ids
        return answer

    def append(self, *ids):
        check(library.ac_append(self.handle, ids_array(ids), c_size_t(len(ids))))

    def position(self):
        tokens = c_int64()
        check(library.ac_position(self.handle, byref(tokens)))
        return tokens.value

    def truncate(self, tokens):
        check(library.ac_truncate(self.handle, tokens))

    def logits(self):
        count = self.properties().vocabulary
        logits = (c_float * count)()
        check(library.ac_logits(self.handle, logits, c_size_t(count)))
        return list(logits)

    def choose(self, sampling=None):
        token = c_int64()
        check(library.ac_choose(self.handle, byref(sampling) if sampling else None, byref(token)))
        return token.value

    def save(self):
        return self.given_bytes(library.ac_save)

    def restore(self, state):
        check(library.ac_restore(self.handle, state, c_size_t(len(state))))
