"""Engine sizing: from model, GPU and load to engine flags and the number of nodes.

All results are calculated from the catalogue. No figure was measured on a GPU: sessions are upper limits by memory, and
each assumption is a named constant marked ASSUMED.
"""
