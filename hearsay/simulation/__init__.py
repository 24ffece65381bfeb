"""All agents at once, on one machine: `simulate` and what it is made of."""
