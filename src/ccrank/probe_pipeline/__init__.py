"""From tasks to probe scores: read states, fit probes layer by layer, choose a layer. Used by rankings and studies."""

from ccrank.probe_pipeline.fitting import LayerFit, ProbeSpec, TaskFit, fit_layers
from ccrank.probe_pipeline.selection import closest_layer, closest_to_anchors, read_anchors
from ccrank.probe_pipeline.states import StateRequest, TaskStates, add_anchors, read_states

__all__ = [
    "LayerFit",
    "ProbeSpec",
    "StateRequest",
    "TaskFit",
    "TaskStates",
    "add_anchors",
    "closest_layer",
    "closest_to_anchors",
    "fit_layers",
    "read_anchors",
    "read_states",
]
