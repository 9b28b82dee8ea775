"""How large an engine must be: from model, GPU and load to the flags of an engine and the number of nodes.

Everything here is arithmetic on the catalogue. No figure was measured on a GPU: sessions are ceilings of memory, and
what is assumed is a named constant that says so.
"""
