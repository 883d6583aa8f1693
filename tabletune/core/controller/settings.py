"""Every constant of the controller, with its unit, its default and why."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tabletune.core.errors import CoreError


@dataclass(frozen=True)
class ControllerSettings:
    """Shares are shares of throughput; times are seconds.

    Survival. short_half_life_s: memory that notices a change; some requests long.
    long_half_life_s: memory that decides; steady traffic is worth remembering for minutes.
    change_z: how many overdispersion-corrected standard deviations apart the two memories
    must be; change_min_shift: and by how much at least (a survival's share of 1).
    prior_weight: request-steps that the promoted prior is worth.

    Residuals (standard deviations of log step time). common_sd: a shift of all lengths alike;
    offset_sd: of one length against the others, profiles were seen off by up to 40 %.
    common_reach, offset_reach: natural logs of batch size over which they are alike.
    common_half_life_s: context grows within a minute; offset_half_life_s: costs of one length
    change seldom. tick_sd: what a tick's mean can be off by, however many steps it has.

    Deciding. settle_s: so long after start, promotion or change small gains count.
    settling_gain, steady_gain: least gain of a swap, over the live batch sizes.
    settling_z, steady_z: a swap must gain this many standard deviations more. early_doubt,
    patience_s: shortly after start or a change at most so much is asked, falling within that
    time to the least gain: what probes have not cleared up by then is decided by best guess.
    steady_doubt: later at most so much.
    settling_dwell_s, steady_dwell_s: least time between swaps. most_swaps_per_minute: over
    any 60 s. histogram_half_life_s: of the live batch sizes. first_decision_s: traffic seen
    before the first swap.

    Exploring. explore_rate, explore_burst_s: the account fills at this share of the time and
    holds at most so many lost seconds; in any minute at most rate * 60 + burst is spent, which
    the defaults make 1 %. explore_horizon_s: how long knowledge is thought to be of use.
    settling_value, steady_value: expected gain below which nothing is probed, shortly after
    start, promotion or a change of traffic, and later. blind_off_s, blind_tail_s: longest
    time without a draft at all, and without one through a position, before a probe is made
    where a good drafter would pay. blind_gain: what it would have to gain then.
    probe_clean_steps: steady steps wanted of a probe; least_probe_steps, most_probe_steps: its
    bounds.
    most_probes: lengths in one exploration. skip_share: a length that would lose more than
    this is not probed for its step time.

    Guard. stall_factor: a step so many times its cell's step time is a stall; stall_floor_s:
    and at least so much longer. A pair without a graph takes three to four times as long at
    every step, so that most of the time is lost; a busy host loses less. most_stalls,
    stalled_share: more stalls than this, which take more than this share of the time, within
    watch_s after a swap. collapse_share: of
    the throughput before the swap, at the same batch sizes; collapse_ticks: so many ticks in
    a row. quarantine_s, quarantine_growth, longest_quarantine_s: first quarantine, factor of
    each next, longest.
    """

    short_half_life_s: float = 2.0
    long_half_life_s: float = 90.0
    change_z: float = 4.0
    change_min_shift: float = 0.02
    prior_weight: float = 400.0
    common_sd: float = 0.15
    offset_sd: float = 0.12
    common_reach: float = 1.0
    offset_reach: float = 0.3
    common_half_life_s: float = 30.0
    offset_half_life_s: float = 1800.0
    tick_sd: float = 0.004
    settle_s: float = 30.0
    settling_gain: float = 0.002
    steady_gain: float = 0.006
    settling_z: float = 0.5
    steady_z: float = 1.0
    early_doubt: float = 0.02
    patience_s: float = 15.0
    steady_doubt: float = 0.03
    settling_dwell_s: float = 2.0
    steady_dwell_s: float = 20.0
    most_swaps_per_minute: int = 8
    histogram_half_life_s: float = 8.0
    first_decision_s: float = 0.5
    explore_rate: float = 0.005
    explore_burst_s: float = 0.3
    explore_horizon_s: float = 60.0
    settling_value: float = 0.0001
    steady_value: float = 0.0005
    blind_off_s: float = 5.0
    blind_tail_s: float = 60.0
    blind_gain: float = 0.02
    probe_clean_steps: int = 4
    least_probe_steps: int = 4
    most_probe_steps: int = 24
    most_probes: int = 4
    skip_share: float = 0.5
    stall_factor: float = 3.0
    stall_floor_s: float = 0.01
    most_stalls: int = 3
    stalled_share: float = 0.2
    watch_s: float = 20.0
    collapse_share: float = 0.7
    collapse_ticks: int = 2
    quarantine_s: float = 60.0
    quarantine_growth: float = 2.0
    longest_quarantine_s: float = 3600.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isinstance(value, int | float) and 0 < value < 1e9):
                raise CoreError(f"setting {field.name}", "a number > 0", value, "see the default")
        for name in ("explore_rate", "collapse_share", "steady_gain", "settling_gain"):
            if getattr(self, name) >= 1:
                raise CoreError(f"setting {name}", "a share below 1", getattr(self, name), "0.01")
