"""`voice rotate`: rotate the passwords of the state store's users without downtime."""
