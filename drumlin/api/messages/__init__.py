"""What a coordinator says to people and to simple workers: `people` about the crawl, `hosts` about hosts and URLs,
`data` about what is stored.

What nodes and coordinators say to each other is in `drumlin.protocol`.
"""
