"""Unattended maintenance: what to tune, when, what may be promoted, and what may be removed.

No flow engine and no tracking server is imported here; whatever schedules this calls it.
"""
