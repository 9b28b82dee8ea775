"""`voice rollout`: what a deploy would replace, and a deploy that is followed, probed and taken back."""
