"""Decoders as people write them, for a test of how many are accepted and right.

They were written without a look at the compiler. `ORDINARY` are legitimate: a causal language model
of one sequence of token ids. `UNSOUND` let a later token leak into an earlier one, as real mistakes do.
Each entry makes a module, or a module and the size of its vocabulary.
"""

import hashlib

from decoder_set import decoder_set

ORDINARY, UNSOUND, ordinary, unsound = decoder_set()


def halves() -> tuple:
    """The names of `ORDINARY` in two sets: what the compiler was mended by first, and what was held back
    to measure it until then."""
    names = sorted(ORDINARY, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    middle = len(names) // 2
    return names[:middle], names[middle:]


from . import (  # noqa: E402,F401
    attention,
    details,
    families,
    gpt,
    halves_of_types,
    leaks,
    llama,
    masks,
    modules,
    newer,
    shapes,
    tutorials,
)
