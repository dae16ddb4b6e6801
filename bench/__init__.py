"""Benchmarks: what a crawl costs, measured against other crawlers on the same fake web.

`bench.pages` makes the pages, `bench.web` serves them and keeps accounts, `bench.run` lets crawlers loose on it one
after the other and compares, `bench.measure` reads what a process tree used. Everything happens on loopback and in
tmpfs, so that what is compared is the crawlers' own work. bench/README.md says how to read the numbers.
"""
