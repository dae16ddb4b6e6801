"""The engine in plain Python: the specification of the contract. Read `engine` first; `shard` is one shard of it,
`keeping` moves it to another engine, and `values` are the small tables and contents beside the frontier."""
