"""`make demo-agent`: a spoken conversation on this machine, with small real models."""
