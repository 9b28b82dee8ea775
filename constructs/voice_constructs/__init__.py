"""Reusable building blocks for a deployment, in one package per cloud."""
