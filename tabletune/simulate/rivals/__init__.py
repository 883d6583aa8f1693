"""Other systems' ways to choose a draft length, as policies of the simulator.

What each does, and what was chosen where a detail is not public: docs/rivals.md.
"""
