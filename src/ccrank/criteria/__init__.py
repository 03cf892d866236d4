"""What a user types for a criterion, understood: "least expensive" → price, cheapest first."""

from ccrank.criteria.understanding import Propose, criterion_of, resolved, understand

__all__ = ["Propose", "criterion_of", "resolved", "understand"]
