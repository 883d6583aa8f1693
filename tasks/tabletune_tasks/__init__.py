"""Prefect tasks: each wraps one call of the library."""
