"""Every measured claim has its command here."""
