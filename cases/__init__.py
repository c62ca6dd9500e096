"""What is asked: pure data about attention problems, with torch for index arithmetic only."""
