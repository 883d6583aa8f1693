"""The examples in the simulator's docstrings are true."""

import doctest
import importlib
import pkgutil

import tabletune.simulate


def test_examples() -> None:
    attempted = 0
    for module in pkgutil.walk_packages(tabletune.simulate.__path__, "tabletune.simulate."):
        results = doctest.testmod(importlib.import_module(module.name))
        assert results.failed == 0, module.name
        attempted += results.attempted
    assert attempted >= 5
