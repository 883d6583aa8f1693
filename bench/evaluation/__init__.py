"""The evaluation: policies compared on a real engine, and what is made of the results."""
