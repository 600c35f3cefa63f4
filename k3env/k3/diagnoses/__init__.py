"""What the output of a failed tool means, and what to do: tables by topic, and how they are looked up."""
