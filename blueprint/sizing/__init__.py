"""How large an engine must be: from model, GPU and load to the flags of an engine and the number of nodes."""
