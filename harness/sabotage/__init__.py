"""Faulty rings: each is a correct implementation with one fault, to show that the suite finds it."""
