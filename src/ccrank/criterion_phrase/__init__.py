"""What a user types for a criterion, understood: "least expensive" → price, cheapest first."""

from ccrank.criterion_phrase.understanding import Propose, Understood, criterion_of, of_criterion, understand

__all__ = ["Propose", "Understood", "criterion_of", "of_criterion", "understand"]
