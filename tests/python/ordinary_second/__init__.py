"""Small decoders as people write them: ORDINARY ones are causal, UNSOUND ones leak later tokens."""
import importlib
import pkgutil

ORDINARY, UNSOUND = {}, {}


def ordinary(make):
    assert make.__name__ not in ORDINARY and make.__name__ not in UNSOUND, make.__name__
    ORDINARY[make.__name__] = make
    return make


def unsound(make):
    assert make.__name__ not in ORDINARY and make.__name__ not in UNSOUND, make.__name__
    UNSOUND[make.__name__] = make
    return make


for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
