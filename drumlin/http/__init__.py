"""What HTTP messages say, read in one place for all of drumlin. Pure: no socket, no clock. Read `headers` first.

- `headers`: the one parser of header blocks, for sites, archives and workers.
- `mime`: the type and the charset that a Content-Type header names; `type_limits`: how large a body of a type may be.
- `cookies`: a small jar for one host. `retry_after`: how long an answer asks to be left alone.
- `names`: whether the name by which a request came is one of ours, against DNS rebinding.
- `refusal`: the exception by which a coordinator refuses a request.

All input is from strangers: nothing here raises because of it, and whatever is remembered has a bound.
"""
