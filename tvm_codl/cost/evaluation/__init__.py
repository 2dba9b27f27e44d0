"""Evaluation: how good the cost model is; what plans never use."""
