"""The main job, composed of measuring, storing and reporting; used by the CLI and the tasks."""
