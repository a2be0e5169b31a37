"""Fused linear losses: their specs, and plans for computing their logits."""
