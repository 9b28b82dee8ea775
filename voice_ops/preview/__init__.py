"""`voice preview azure`: show the resources that the Pulumi programs would create."""
