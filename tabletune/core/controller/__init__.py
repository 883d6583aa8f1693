"""The controller: from promoted table, live observations and time to decisions. Pure."""
