"""The examples in the core's docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import tabletune.core

MODULES = [m.name for m in pkgutil.iter_modules(tabletune.core.__path__, "tabletune.core.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
