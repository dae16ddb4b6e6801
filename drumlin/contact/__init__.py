"""The law of contact: when a node may ask which host for what. Events in, actions out; no clock, no chance, no socket.

How it works. `law.Contacts` holds the leases of a node and hears what happens (`events`): a lease came, an answer
arrived, time has passed. It answers with what is to be done (`actions`): ask for robots.txt or a page, settle a URL,
tell the coordinator about a host. `drumlin.node.agent` performs that; so do `drumlin fetch` and the tests.

Where to read. `events` and `actions` are its whole interface, `terms` what they are made of. `hosts` states the law and
its table of phases; `law` decides, with one file for each subject:

    leases          when to ask for leases and to renew them
    robots_asking   how robots.txt is asked for, through redirects and on other hosts
    rules           what robots.txt allows; `robots_line` is what asking long rules may cost
    pages           what the answer to a page's request means for its host
    steps           redirects from a URL to itself; `cookies` is what is sent back to a site
    backing_off     hosts that could not be asked
    desk            what these share while one event is handled

Invariants are stated in `law`, and `tests/unit/test_contact_law.py` drives it with arbitrary events to check them.

Limits. Up to `leases.HOSTS_MAX` hosts are held. Cookies take `cookies.CHARS_MAX` characters. A tick takes
`law.CONTACTING_S_MAX` at most, however slow robots rules are to match.
"""

from drumlin.contact.law import Contacts
from drumlin.contact.terms import ContactSettings, Moment

__all__ = ["ContactSettings", "Contacts", "Moment"]
