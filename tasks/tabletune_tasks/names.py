"""Names that several parts agree on."""

#: Events that start flows.
ENGINE_CHANGED = "tabletune.engine.changed"
DRIFT_DETECTED = "tabletune.drift.detected"


def served_name(flow: str, gpu: str) -> str:
    """What Prefect calls the served flow for one kind of GPU, such as ``retune/h200``."""
    return f"{flow}/{gpu.lower()}"


def pool_name(gpu: str) -> str:
    """The work pool of one kind of GPU: each kind has workers of its own."""
    return f"tabletune-{gpu.lower()}"
