"""What is true: plain attention without a process group, and how far a correct answer may be from it."""
