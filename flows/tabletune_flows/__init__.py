"""Prefect flows: the order of tasks, and nothing else."""
