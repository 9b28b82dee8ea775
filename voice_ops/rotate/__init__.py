"""`voice rotate`: new passwords for the state store's users, without downtime."""
