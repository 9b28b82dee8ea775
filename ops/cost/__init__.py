"""What a deployment costs: list prices times what its templates and Pulumi graph hold.

Everything is counted in what would be deployed, not in the file. The three cases are the smallest sizes, the largest,
and an expected point between them.
"""
