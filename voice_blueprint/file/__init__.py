"""Deployment file: typed model, loading, and source locations."""
