"""Small decoders as people write them: ORDINARY ones are causal, UNSOUND ones leak later tokens."""

import importlib
import pkgutil

from decoder_set import decoder_set

ORDINARY, UNSOUND, ordinary, unsound = decoder_set()

for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
