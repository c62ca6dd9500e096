"""How it is told: results files, the numbers read off them, and the page made of them. No torch, no other room."""
