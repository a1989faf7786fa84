"""Rules and exceptions: exact theory of relational generalisation, and a ranker that remembers upsets."""
