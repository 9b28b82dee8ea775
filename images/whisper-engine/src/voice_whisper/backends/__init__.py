"""Models by the hardware that they run on, behind one interface."""
