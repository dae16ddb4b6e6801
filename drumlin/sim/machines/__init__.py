"""The machines of a simulation and what is between them: real code of nodes and coordinators on a made-up world.

`loop` and `clocks` are time, `calling` is the network to coordinators, `fetching` the one to sites, `disk` a node's
disk, and `engine` the way to the servers of the engine. On these stand `node` and `coordinator`; read those first.
"""
