"""`voice preview azure`: the resources that the Pulumi programs would create."""
