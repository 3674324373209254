"""A server with the jobs of an online shop, for newcomers and for the pictures of the docs (`dueline demo`).

`world` says what is there at the beginning, `staff` works on it, `receiver` is what push calls, `customers` keep it
moving, and `run` puts them together in a temporary folder. Everything follows from one seed, except times.
"""
