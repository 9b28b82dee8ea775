"""Taking one host away without dropping a call: the operator's side of it."""
