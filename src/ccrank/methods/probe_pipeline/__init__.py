"""From tasks to probe scores: read states, fit probes layer by layer, choose a layer. Used by rankings and studies."""
