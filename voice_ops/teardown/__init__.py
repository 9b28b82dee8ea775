"""`voice teardown`: delete a deployment, and show the deleted, retained and unexpectedly remaining resources."""
