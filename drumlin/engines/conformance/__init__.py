"""The conformance suite for engines, yours included: subclass `suite.EngineConformance` and say how to open one.

`machine` drives an engine and the specification side by side; the other files are examples, by subject.
"""
