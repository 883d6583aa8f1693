"""One run in stages, for callers that show, time or gate each of them."""

import os
import pathlib
from dataclasses import replace
from types import TracebackType

from tabletune.core.errors import NoTableError
from tabletune.measure.clock import Clock
from tabletune.measure.progress import Progress
from tabletune.pipeline.build import Build, Evidence, build_version
from tabletune.pipeline.corrected import keep_correction, with_corrections
from tabletune.pipeline.identify import Target
from tabletune.pipeline.live_prior import live_prior
from tabletune.pipeline.report_run import report_run
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.reuse import ANY_AGE, Reuse
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.serve import ServeCommands, evidence_losses, serve_commands
from tabletune.pipeline.session import EngineSession
from tabletune.pipeline.stage_acceptance import stage_acceptance
from tabletune.pipeline.stage_profile import go_on_later, stage_profile
from tabletune.pipeline.stage_qualify import stage_qualify
from tabletune.pipeline.stage_validate import stage_validate
from tabletune.pipeline.workspace import Workspace
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.evidence import expected_tokens_of
from tabletune.records.plan import CapturePlan
from tabletune.records.pointer import Pointer
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile
from tabletune.records.table import TableVersion
from tabletune.records.text import table_line
from tabletune.records.verdict import Verdict
from tabletune.store.base import Store
from tabletune.store.errors import StoreError
from tabletune.store.promotion import Move, promote
from tabletune.store.signing import signer_from


class StageOrderError(RuntimeError):
    """A stage was asked for before the one that it needs."""

    def __init__(self, stage: str, needs: str) -> None:
        self.stage, self.needs = stage, needs
        super().__init__(f"{stage} needs what {needs} makes: call {needs} first")


class StagedRun:
    """One deployment's run. Each stage is one call; what is still valid is reused.

    Engines live inside the `with` block only. `promote` and `report` work after it, so that a
    person may take a day to approve while no engine runs.

    Args:
        fresh: measure again what is still valid.
        revalidate: validate again although a verdict holds.
        reuse: how old what is reused may be.
        harvest_max_age_d: acceptance is taken from a harvest of live traffic that is no older,
            where the store has one for this fingerprint; 0 takes none.
    """

    def __init__(
        self,
        request: RunRequest,
        target: Target,
        workspace: Workspace,
        store: Store,
        clock: Clock,
        progress: Progress,
        fresh: bool = False,
        revalidate: bool = False,
        *,
        reuse: Reuse = ANY_AGE,
        harvest_max_age_d: float = 0.0,
    ) -> None:
        self.request, self.target, self.store = request, target, store
        self.workspace, self.clock, self.progress = workspace, clock, progress
        self.incumbent_pointer: Pointer | None = None
        self.incumbent: TableVersion | None = None
        self.verdict: Verdict | None = None
        self.move: Move | None = None
        self._fresh, self._revalidate, self._reuse = fresh, revalidate, reuse
        self._harvest_max_age_d = harvest_max_age_d
        session = EngineSession(request, target.python, target.platform, workspace.logs, progress)
        self._context = RunContext(
            request, target, workspace, session, clock, progress, fresh, reuse
        )
        self._qualified: tuple[CapturePlan, Qualification] | None = None
        self._prior: AcceptancePrior | None = None
        self._evidence: Evidence | None = None
        self._build: Build | None = None
        workspace.write(workspace.request_path, request.to_json().encode())
        workspace.save(target.fingerprint.identity, target.fingerprint)

    def __enter__(self) -> "StagedRun":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._context.session.__exit__(kind, error, trace)

    @property
    def boot_times_s(self) -> dict[str, float]:
        """Seconds to a healthy server, by engine; empty where nothing had to be measured."""
        return dict(self._context.session.boot_times_s)

    @property
    def evidence(self) -> Evidence:
        """What was measured; after `profile`."""
        if self._evidence is None:
            raise StageOrderError("the evidence", "profile")
        return self._evidence

    @property
    def build_made(self) -> Build:
        """The candidate; after `build`. Once validated, what it was corrected to."""
        if self._build is None:
            raise StageOrderError("the candidate", "build")
        return self._build

    def check_store(self) -> None:
        """Show a store that cannot be used now, not after the measurements.

        Raises:
            StoreError: it cannot be read or written.
        """
        self.store.read_pointer(self.request.channel)
        self.store.check_writable()

    def in_force(self) -> bool:
        """Whether the channel's table was made for exactly this fingerprint and objective."""
        pointer, _ = self.store.read_pointer(self.request.channel)
        if pointer is None or pointer.fingerprint != self._context.identity:
            return False
        version = self.store.get(TableVersion, pointer.table_version)
        limit = self.request.max_tpot_ms
        return version.max_tpot_s == (None if limit is None else limit / 1e3)

    def qualify(self) -> Qualification:
        """Plan captures and qualify the engine under them."""
        self._qualified = stage_qualify(self._context)
        return self._qualified[1]

    def count_acceptance(self) -> AcceptancePrior:
        """Acceptance of live traffic where it was harvested, else counted on sample prompts."""
        plan, _ = self._needed_plan("count_acceptance")
        self._prior = self._harvested(max(plan.lengths)) or stage_acceptance(self._context, plan)
        return self._prior

    def profile(self) -> Profile:
        """Measure step times where the goodput curves may cross."""
        plan, qualification = self._needed_plan("profile")
        if self._prior is None:
            raise StageOrderError("profile", "count_acceptance")
        tokens = expected_tokens_of(self._prior)
        profile = stage_profile(self._context, plan, qualification, tokens)
        fingerprint = self.target.fingerprint
        self._evidence = Evidence(fingerprint, plan, qualification, profile, self._prior)
        return profile

    def build(self) -> Build:
        """Build the table version and keep it; read what is in force now.

        Where an earlier validation corrected that version, the candidate is what it made of it.

        Raises:
            NoTableError: some batch size has no usable length. The next run measures cells that
                noise made unusable again.
        """
        evidence = self.evidence
        try:
            built = build_version(self.request, evidence, evidence.padded_tokens())
        except NoTableError:
            go_on_later(self._context, evidence.plan, evidence.profile)
            raise
        self._build = with_corrections(self.workspace, self._context.identity, built)
        self.progress.say(f"table: {table_line(self._build.version.table)}")
        self.workspace.save(self._context.identity, self._build.version)
        self.incumbent_pointer, _ = self.store.read_pointer(self.request.channel)
        pointer = self.incumbent_pointer
        self.incumbent = pointer and self.store.get(TableVersion, pointer.table_version)
        return self._build

    def validate(self) -> Verdict:
        """The verdict on the candidate, a kept passing one where nothing changed.

        The measurements may correct the candidate: then `build_made` has the corrected version,
        which the verdict is on, and the store has what was corrected, too, with its verdict.
        Afterwards everything that the version names is in the store, before a pointer can
        name it. After a verdict that fails, the next run fills the gaps of the profile.
        """
        version = self.build_made.version
        kept = None if self._fresh or self._revalidate else self._kept_verdict(version)
        self.verdict = kept or self._validated()
        self._keep(self.verdict)
        return self.verdict

    def _validated(self) -> Verdict:
        build, identity = self.build_made, self._context.identity
        found = stage_validate(self._context, self.evidence.plan, build, self.incumbent)
        if found.corrected is not None:
            keep_correction(self.workspace, identity, build.version, found.version)
            self.workspace.save(identity, found.version)
            for record in found.corrected:
                self.store.put(record)
            self._build = replace(build, version=found.version)
        if not found.verdict.passed:
            go_on_later(self._context, self.evidence.plan, self.evidence.profile)
        return found.verdict

    def promote(self, who: str, reason: str = "a passing verdict") -> Move:
        """Move the channel's pointer, if it is still where it was when the candidate was built.

        Signed where TABLETUNE_SIGNING_KEY names a key.

        Raises:
            MoveRefused, LostRace, StoreError: see store/promotion.py.
        """
        if self.verdict is None:
            raise StageOrderError("promote", "validate")
        before = self.incumbent_pointer
        self.move = promote(
            self.store,
            self.request.channel,
            self.build_made.version.content_hash,
            self.verdict.content_hash,
            self.clock.utc(),
            who,
            reason,
            expected_version=before.table_version if before else "",
            signer=signer_from(os.environ),
        )
        return self.move

    def commands(self) -> ServeCommands:
        """How to serve with the candidate."""
        version = self.build_made.version
        return serve_commands(
            self.request,
            version,
            self.target.fingerprint,
            self.store.url,
            self.request.channel,
            evidence_losses(version, self.evidence),
        )

    def report(self) -> pathlib.Path:
        """Write the HTML report and its plots; returns the report's path.

        Raises:
            ReportError: it cannot be written.
        """
        build = self.build_made
        files = report_run(
            self.request,
            self.evidence,
            build,
            self.verdict,
            None if self.incumbent is None else self.incumbent.table,
            self.commands(),
            self.clock.utc(),
            self.workspace.reports / build.version.content_hash[:12],
        )
        return files.html

    def _harvested(self, draft_length: int) -> AcceptancePrior | None:
        if self._harvest_max_age_d <= 0:
            return None
        now, identity = self.clock.utc(), self._context.identity
        try:
            found = live_prior(self.store, identity, draft_length, now, self._harvest_max_age_d)
        except StoreError as error:  # measuring needs no store; it may be back when it is needed
            self.progress.say(f"harvests of live traffic cannot be looked for: {error}")
            return None
        if found is not None:
            engines = f"{found.prompt_count} engines' live traffic"
            self.progress.say(f"acceptance of {engines} until {found.measured_at} used")
            self.workspace.save(identity, found)
        return found

    def _needed_plan(self, stage: str) -> tuple[CapturePlan, Qualification]:
        if self._qualified is None:
            raise StageOrderError(stage, "qualify")
        return self._qualified

    def _kept_verdict(self, version: TableVersion) -> Verdict | None:
        name = f"verdict-{version.content_hash[:16]}"
        kept = self.workspace.load(self._context.identity, Verdict, name)
        before = "" if self.incumbent is None else self.incumbent.content_hash
        if kept is None or not kept.passed:
            return None
        if before not in (kept.table_version, kept.incumbent_version):
            return None
        # Judged by other margins it may fail now, and no gate would let it through.
        if kept.margins != self.request.margins:
            return None
        if not self._reuse.verdict(kept.validated_at, self.clock.utc()):
            return None
        self.progress.say(f"passing verdict of {kept.validated_at} reused")
        return kept

    def _keep(self, verdict: Verdict) -> None:
        evidence = self.evidence
        for record in (
            evidence.fingerprint,
            evidence.plan,
            evidence.qualification,
            evidence.prior,
            evidence.profile,
            self.build_made.version,
            verdict,
        ):
            self.store.put(record)
