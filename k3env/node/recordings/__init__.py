"""A node's answers, kept as files: written down, made anonymous, answered from again."""
