"""What changed between two results files: what broke, what is slower, what sends more."""
