"""What the validation asks of an engine."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from tabletune.measure.api import ServedModel
from tabletune.measure.progress import Silent
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.session import LiveEngine
from tabletune.pipeline.stage_validate import SYNTHETIC_OUTPUT_TOK, validation_requests

REQUEST = RunRequest(model="m", method="eagle3", drafter="d", engine="e", context_tok=64)
SYNTHETIC = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.7, 0.5]}


@pytest.fixture
def live() -> Callable[[int], LiveEngine]:
    """An engine that is only asked for its longest sequence."""
    return lambda longest: LiveEngine(cast(Any, None), cast(Any, None), ServedModel("m", longest))


def test_synthetic_text_ends_after_a_fixed_output(live: Callable[[int], LiveEngine]) -> None:
    request = replace(REQUEST, speculative_extra=SYNTHETIC)
    found = validation_requests(request, live(4096), Silent(), 256)
    assert {r.max_tokens for r in found} == {SYNTHETIC_OUTPUT_TOK}
    assert all(r.extra["ignore_eos"] for r in found)
    assert len({r.prompt for r in found if isinstance(r.prompt, str)}) == len(found)


def test_a_short_engine_gets_what_it_holds(live: Callable[[int], LiveEngine]) -> None:
    request = replace(REQUEST, speculative_extra=SYNTHETIC)
    found = validation_requests(request, live(256), Silent(), 256)
    assert {r.max_tokens for r in found} < set(range(1, 256))
