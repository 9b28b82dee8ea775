"""`voice sandbox`: rehearse the deployment to both clouds on this machine."""
