"""What becomes of stored data when it is old, when somebody must have it kept, or when somebody wants it removed.

How it works
    People order: how long each kind of data is kept (`retention`), and what is held whatever its age (`holds`). Orders
    are entries of a `book` that lies in the store itself, with who gave them and when. What retention carried out is
    there too, with its numbers. So the book is the audit log of all this, and it cannot be separated from the data.

    `removal` takes a URL, a host or a domain out of a whole crawl on request, its frontier too.

Where to read
    `holds` first, then `book`, then `retention/`: `policy` and `planning` decide, without a clock or a file; `found`,
    `in_directory` and `in_bucket` find and carry out. `held` keeps segments in a bucket from being joined with others.

Invariants
    - What a dry run says is what the run does: both make the same plan.
    - A file is noted as deleted or moved before it is deleted, so a kill at any moment leaves something that the next
      run completes, and no reader misses a file without being told why.
    - What a hold covers is not deleted, not moved, not rewritten and not joined with other files.
    - Neither retention nor a removal begins while the other is under way, as the book says. A run of retention that was
      taken for a killed one stops before its next step.
"""
