"""`voice rotate`: new passwords for the state store's users, while every call goes on."""
