"""`voice schema`: what a deployment file may say."""
