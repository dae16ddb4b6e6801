"""What `drumlin sim` does besides simulating.

- `files`: reads scenarios, and says where a picture may be written.
- `status`: a line on the terminal that says how far the simulation is.
- `telling`: prints the figures, and a broken promise with the smallest scenario that breaks it.
"""
