"""Nothing is collected while something is imported."""

import gc

import pytest

from opcheck.running.importing import importing


def test_nothing_is_collected_meanwhile():
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collection_goes_on_where_an_import_fails():
    with pytest.raises(ImportError), importing():
        raise ImportError("no such module")
    assert gc.isenabled()


def test_a_process_without_collection_stays_so():
    gc.disable()
    try:
        with importing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
