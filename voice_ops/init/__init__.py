"""`voice init`: a first deployment file."""
