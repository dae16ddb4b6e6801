"""Who may do what, and what becomes of those who misuse it. Read `tokens` first.

- `tokens`: bearer tokens with roles, the keys of nodes, and revocation.
- `ended_sessions`: sessions of browsers that were logged out of.
- `entry_code`: opens the page of a crawl on one machine, once.
- `signing`: how a node signs its requests, and how each signature is accepted only once.
- `seals`: ids of leases and assignments that only a coordinator can make.
- `limits`: how many requests one sender may make, and when its conduct ends in quarantine.
- `misdeeds`: counts what a node did that no honest node does, until `drumlin.api.gate` judges it.
- `audit`: every change that a person made, with who, when and from where.

The secret, the tokens' records, revocations and the audit log are in the engine, so all coordinators of a crawl agree
about them. Points against a sender are each coordinator's own; only the quarantine that follows is shared. Secrets are
never logged, and no token is stored: only who has one. `drumlin.api.gate` applies these rules to requests.
"""
