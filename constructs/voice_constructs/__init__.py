"""Reusable building blocks of a deployment, in one package per cloud."""
