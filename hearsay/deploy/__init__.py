"""The network backend: every agent in a process of its own, peer to peer over Zenoh.

Needs the extra `network`.

    settings.py    net.toml: who takes part, what they compute together, and the hash by which they
                   know that they agree (starter.toml: what `network init` writes)
    records.py     an agent's own records, from a file on its own host
    growing.py     files that grow line by line: what of them is whole
    following.py   records that arrive while the network runs: a file that grows
    deployment.py  all that follows from net.toml before anything is sent
    budget.py      the certificate of a deployed run
    steps.py       the algorithm's functions, compiled for one agent
    privatize.py   noise on a lattice, from the operating system's random numbers
    messages.py    what a message looks like, and what is not one (as bytes: release/tensors.py)
    ledger.py      what must survive anything: state, outgoing bytes and budget, on disk before a
                   message leaves (rows.py, about.py: its tables, blobs.py: its large files,
                   checksums.py)
    mark.py        which message may have left, outside the ledger, so that a ledger that has lost
                   it is refused
    lifetime.py    what the agent's records have spent in all runs; spending.py: to be looked at
    links.py       names, endpoints and certificates; what may cross a link
    tls.py         a certificate authority for trying things out
    transport.py   Zenoh: publishing, subscribing, asking (the only file that imports it)
    greeting.py    what neighbours must agree on before any noise is added
    neighbours.py  waiting for them; diagnosis.py: why one cannot be reached
    mailbox.py     messages that have arrived, checked; inbox.py: weighed and added up
    agent.py       the rounds of one agent; host.py: an agent as a process
    launch.py      all agents of a network as processes of one machine
    history.py     what a run did, from its ledgers
    averages.py    averages of what an agent has sent and heard, beside its ledger; releasing.py:
                   the model that may be published, from them
"""
