"""What drumlin tells Prometheus: which metrics there are, how they are counted, and how they are written.

- `registry`: every metric, once: its name, kind, help and labels. Pages, their reference and tests follow it.
- `counting`: a histogram that costs a fraction of a microsecond for each observation
- `text`: Prometheus' text format
- `process`: what every process tells of itself: memory, CPU time, open files
- `server`: a small HTTP server for processes that have none of their own

Invariants: a unit stands last in a name, or before `_total`. No label has a value that a site, a page or a stranger
chose, so the number of series is bounded: no hosts, no URLs. What each process counts for itself adds up over a fleet.
What concerns the whole crawl is told by every coordinator alike, so of that the largest is taken, not the sum.

Limits: this package knows nothing of crawls. Who counts is `node/figures.py` and `api/calls/metrics.py`.
"""
