"""Benchmarks: what a crawl costs, measured against other crawlers on the same fake web.

`bench.pages` makes the pages, `bench.web` serves them and counts requests, `bench.run` runs one crawler after the other
and compares them, `bench.measure` reads what a process tree used. Everything happens on loopback and in tmpfs, so only
the crawlers' own work is compared. The files `load*` are the load test of coordinators, `micro` and the smaller ones
measure single parts. bench/README.md says how to read the numbers.
"""
