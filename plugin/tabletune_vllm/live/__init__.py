"""What follows a source and adapts, in threads beside the engine's: nothing here runs on the
engine's thread, and nothing is imported before a source is followed."""
