"""Character encodings as browsers understand them. Read `charset` first: which encoding a page is in.

`labels` are their names, `prescan` finds declarations, `decoders` and `big5` read characters, `encoders` write queries.
"""
