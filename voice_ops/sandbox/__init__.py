"""`voice sandbox`: the rehearsal of both clouds."""
