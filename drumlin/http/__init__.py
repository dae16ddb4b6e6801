"""What HTTP messages say: the one parser of header blocks, and the types that a Content-Type header names. Pure."""
