"""Named, seeded scenarios for policies that choose draft lengths, and how they are scored."""
