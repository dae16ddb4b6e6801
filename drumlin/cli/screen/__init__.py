"""What `drumlin top` shows: a crawl on a whole terminal, drawn anew every second.

`sampling` asks a coordinator, on a thread of its own, so keys work while it does not answer. `view` is what the person
at the keyboard has chosen; `keys` reads the keyboard. `frame` makes lines of a sample and a view for a terminal of any
size; `lists` makes the rows of its three lists, and `history` the chart.

Invariants
- A frame has exactly as many lines as the terminal, none wider than it.
- Whatever ends the program, the terminal is left as it was found.
- All text from sites and nodes goes through `one_line`: it cannot control the terminal.

Limits. A list shows the first `HOSTS_ASKED`, `NODES_ASKED` and `LETTERS_ASKED` entries that a coordinator tells.
"""
