"""What a run of the tests leaves out unless AC_TEST_LONG is set: variants that users meet rarely and whose
code another variant runs as well. One case of each kind of fault stays in every run."""

import os

import pytest

LONG = bool(os.environ.get("AC_TEST_LONG"))
only_long = pytest.mark.skipif(not LONG, reason="a rarer variant: AC_TEST_LONG=1")


def varied(common, rare) -> list:
    """Cases for pytest.mark.parametrize: the common ones in every run, the rare ones with AC_TEST_LONG=1.
    Both are lists of what parametrize takes: values, tuples of them, or pytest.param."""
    return [*common, *(late(case) for case in rare)]


def late(case):
    """The case as one of AC_TEST_LONG=1 alone."""
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=[*case.marks, only_long], id=case.id)
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=only_long)


def first_of(cases, often) -> list:
    """The cases in their order, for parametrize: those of `often` in every run, others with AC_TEST_LONG=1."""
    unknown = set(often) - set(cases)
    assert not unknown, unknown
    return [case if case in often else late(case) for case in cases]
