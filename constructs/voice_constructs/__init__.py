"""Reusable building blocks of the deployment, one package per cloud."""
