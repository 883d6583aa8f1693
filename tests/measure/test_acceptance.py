import numpy as np
import pytest
from closed_loop_engine import Behaviour, LoopClock, LoopEngine, open_loop

from tabletune.core.survival import SurvivalCounts, proposal_rate, survival
from tabletune.measure.acceptance import AcceptanceError, acceptance_problems, measure_acceptance
from tabletune.measure.progress import Silent
from tabletune.measure.prompts import load_prompts
from tabletune.measure.render import Renderer
from tabletune.records.acceptance import AcceptancePrior

PROMPTS = load_prompts()


class Told(Silent):
    """Remembers the sentences."""

    def __init__(self):
        self.sentences = []

    def say(self, text):
        self.sentences.append(text)


def run(engine, prompts=PROMPTS, length=4, concurrency=16, progress=None, **options):
    render = Renderer(engine, "m", 64, Silent())
    return measure_acceptance(
        engine,
        "m",
        prompts,
        length,
        concurrency,
        render=render,
        fingerprint="f" * 64,
        progress=progress or Silent(),
        clock=engine.clock,
        open_load=open_loop,
        **options,
    )


def core_counts(counts):
    return SurvivalCounts(counts.drafted_through, counts.accepted_through, counts.request_steps)


def test_recovers_survival_and_covers_every_prompt():
    truth = (0.8, 0.6, 0.4, 0.25)
    engine = LoopEngine(LoopClock(), Behaviour(truth))
    prior = run(engine)
    assert prior.prompt_count == 160
    assert prior.source == "measured"
    assert survival(core_counts(prior.counts)) == pytest.approx(truth, abs=0.02)
    assert prior.counts.request_steps == prior.counts.drafted_through[0]
    assert engine.calls[0] == ("pin", 4)
    assert engine.calls[-1] == ("pin", None)
    assert prior.wall_time_s > 1
    assert AcceptancePrior.from_json(prior.to_json()) == prior


def test_parts_add_up_to_the_whole_and_nothing_is_missed():
    engine = LoopEngine(LoopClock(), Behaviour(proposal=0.4))
    prior = run(engine)
    recorded = engine.steps(0, 10**9)
    assert prior.counts.drafted_through == tuple(recorded.drafted_through.sum(axis=0))
    assert prior.counts.accepted_through == tuple(recorded.accepted_through.sum(axis=0))
    assert list(prior.by_group) == ["code", "chat", "summarising", "extraction"]
    for parts in (prior.by_group, prior.by_batch_size):
        drafted = np.sum([p.drafted_through for p in parts.values()], axis=0)
        assert tuple(drafted) == prior.counts.drafted_through
        assert sum(p.request_steps for p in parts.values()) == prior.counts.request_steps
    assert "16" in prior.by_batch_size
    assert proposal_rate(core_counts(prior.counts))[0] == pytest.approx(0.4, abs=0.02)


def test_shorter_length_than_the_engine_can():
    engine = LoopEngine(LoopClock())
    prior = run(engine, length=2)
    assert len(prior.counts.drafted_through) == 2
    assert survival(core_counts(prior.counts)) == pytest.approx((0.8, 0.6), abs=0.02)


def test_synthetic_source_is_marked():
    engine = LoopEngine(LoopClock())
    assert run(engine, PROMPTS.sample(8), synthetic=True).source == "synthetic"


def test_problems_are_said_in_words():
    told = Told()
    engine = LoopEngine(LoopClock(), Behaviour((0.0, 0.0)))
    prior = run(engine, length=2, progress=told)
    assert any("not one of" in s for s in told.sentences)
    assert acceptance_problems(prior) == told.sentences
    told = Told()
    run(LoopEngine(LoopClock()), PROMPTS.sample(4), progress=told)
    assert any("uncertain; use more prompts" in s for s in told.sentences)
    told = Told()
    run(LoopEngine(LoopClock(), Behaviour((1.0, 1.0))), length=2, progress=told)
    assert any("were accepted, which real text" in s for s in told.sentences)
    told = Told()
    run(LoopEngine(LoopClock(), Behaviour(proposal=0.0)), progress=told)
    assert any("proposed nothing for the group 'code'" in s for s in told.sentences)


def test_an_ordinary_run_has_no_problems():
    told = Told()
    run(LoopEngine(LoopClock()), progress=told)
    assert told.sentences == []


def test_lost_steps_are_said():
    told, engine = Told(), LoopEngine(LoopClock())
    engine.lose_at = 50
    run(engine, progress=told)
    assert any("7 engine steps were overwritten" in s for s in told.sentences)


def test_engine_that_ignores_the_pin_is_refused_and_unpinned():
    engine = LoopEngine(LoopClock(), Behaviour(ignores_length=1))
    with pytest.raises(AcceptanceError, match=r"steps with another length.*plugin's status"):
        run(engine, length=3)
    assert engine.calls[-1] == ("pin", None)


def test_failing_requests_are_refused_with_their_error():
    engine = LoopEngine(LoopClock(), Behaviour(fails="HTTP 400: too long"))
    with pytest.raises(AcceptanceError, match="HTTP 400: too long"):
        run(engine)


def test_unfinished_chat_template_falls_back_to_text():
    from tabletune.measure.api import EngineApiError

    class NoTemplate:
        asked = 0

        def chat_token_ids(self, model, messages):
            self.asked += 1
            raise EngineApiError("POST /tokenize", "HTTP 400: no chat template", "")

    told, tokenizer = Told(), NoTemplate()
    requests = Renderer(tokenizer, "m", 8, told, max_prompt_tok=50)(PROMPTS.prompts[:3])
    assert tokenizer.asked == 1
    assert [r.prompt for r in requests] == [p.text for p in PROMPTS.prompts[:3]]
    assert requests[0].extra == {"truncate_prompt_tokens": 50}
    assert len(told.sentences) == 1
