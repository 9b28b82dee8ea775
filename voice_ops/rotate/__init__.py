"""`voice rotate`: rotate the passwords of the state store users without downtime."""
