"""`voice init`: write a first deployment file."""
