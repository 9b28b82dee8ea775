"""`voice dashboards`: write the dashboards for an Azure section as files."""
