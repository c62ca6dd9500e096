"""How it is asked: runs an implementation on a case's ranks and judges what comes back."""
