import pytest

from tabletune.measure.metrics import MetricsError, parse_counters

PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
vllm:generation_tokens_total{engine="1",model_name="m"} 20.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
"""
SPECULATION = """vllm:spec_decode_num_drafts_total{engine="0"} 40.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 80.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 18.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 2.0
"""


def test_sums_over_engines():
    counters = parse_counters(PAGE + SPECULATION)
    assert (counters.generation_tok, counters.running) == (120, 4)
    assert (counters.drafts, counters.draft_tok, counters.accepted_tok) == (40, 80, 50)
    assert counters.accepted_per_pos == (32, 18)
    assert counters.speculative


def test_engine_without_speculation():
    counters = parse_counters(PAGE)
    assert not counters.speculative
    assert (counters.drafts, counters.accepted_per_pos) == (0, ())


def test_difference():
    later = parse_counters(PAGE.replace("100.0", "160.0") + SPECULATION)
    assert (later - parse_counters(PAGE + SPECULATION)).generation_tok == 60
    with pytest.raises(MetricsError, match="fall from 180 to 120"):
        parse_counters(PAGE + SPECULATION) - later


@pytest.mark.parametrize(
    ("page", "missing"),
    [
        ("", "vllm:generation_tokens_total"),
        (PAGE.replace("num_requests_running", "other"), "vllm:num_requests_running"),
        (PAGE + SPECULATION.splitlines()[0], "vllm:spec_decode_num_draft_tokens_total"),
        ("<html>\n", "Prometheus text"),
    ],
)
def test_what_is_missing_is_named(page, missing):
    with pytest.raises(MetricsError) as caught:
        parse_counters(page)
    assert caught.value.missing == missing


def test_counters_are_summed_over_engines() -> None:
    page = "\n".join(
        f'vllm:{name}_total{{engine="{engine}"}} {value}'
        for engine in (0, 1)
        for name, value in (
            ("generation_tokens", 10),
            ("prompt_tokens", 3),
            ("spec_decode_num_drafts", 4),
            ("spec_decode_num_draft_tokens", 8),
            ("spec_decode_num_accepted_tokens", 5),
            ("other", 7),
        )
    )
    running = "\nvllm:num_requests_running 2\n"
    found = parse_counters(page + running)
    assert (found.generation_tok, found.drafts, found.prompt_tok) == (20, 8, 6)
    assert (found - found).prompt_tok == 0
    with pytest.raises(MetricsError, match="expected vllm:generation_tokens_total"):
        parse_counters(running)
