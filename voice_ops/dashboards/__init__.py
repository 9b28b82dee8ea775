"""`voice dashboards`: write the dashboards of an Azure section as files."""
