"""A set of decoders for a test of how many are accepted and right: those that are legitimate, and those in
which a later token leaks into an earlier one. Its modules name their decoders by two decorators."""


def decoder_set() -> tuple:
    """The legitimate ones and the unsound ones, by name, and the decorator that adds to each."""
    ordinary, unsound = {}, {}

    def adds_to(into: dict):
        def keep(make):
            assert make.__name__ not in ordinary and make.__name__ not in unsound, make.__name__
            into[make.__name__] = make
            return make

        return keep

    return ordinary, unsound, adds_to(ordinary), adds_to(unsound)
