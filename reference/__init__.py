"""What is true: slow, plain attention on any device without a process group, and how far a correct answer may be from it."""
