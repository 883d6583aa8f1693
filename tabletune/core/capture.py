"""The capture planner: which (b, K) of an engine run as a CUDA graph, and what to capture.

    settings = GraphSettings(...)           what an engine is told
    predict_graphs(settings)                what it will capture, where it stalls or crashes
    choose_plan(...), safer_plans(plan)     what to tell it instead, and then
    compare_captured(prediction, graphs)    what it really captured

docs/capture-planning.md says in words what these know and from where.
"""

from tabletune.core.capture_choose import choose_plan
from tabletune.core.capture_compare import CaptureComparison, compare_captured
from tabletune.core.capture_graphs import Graph
from tabletune.core.capture_plan import CaptureCosts, CapturePlan, DroppedLength, PlanBudget
from tabletune.core.capture_predict import GraphPrediction, StepGraphs, predict_graphs
from tabletune.core.capture_safer import SaferPlan, safer_plans
from tabletune.core.capture_settings import (
    GraphSettings,
    GraphSettingsError,
    UnsupportedEngineError,
)

__all__ = [
    "CaptureComparison",
    "CaptureCosts",
    "CapturePlan",
    "DroppedLength",
    "Graph",
    "GraphPrediction",
    "GraphSettings",
    "GraphSettingsError",
    "PlanBudget",
    "SaferPlan",
    "StepGraphs",
    "UnsupportedEngineError",
    "choose_plan",
    "compare_captured",
    "predict_graphs",
    "safer_plans",
]
