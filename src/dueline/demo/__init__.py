"""A server with the jobs of an online shop, for newcomers and for the pictures of the docs (`dueline demo`).

`shop` has the jobs at the beginning and the customers who send more, `workers` handles them, `receiver` answers push
calls, `chart_history` fills the charts, and `run` puts them together in a temporary folder. Everything except times
follows from one seed.
"""
