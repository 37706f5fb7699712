"""Walks every reachable world of small configurations of the real `submit` and `decide`.

A world is the stored job, what each reconciler still has to do, and everything that the bus and the
services have ever said. The network keeps every message for ever and may deliver any of them at any
moment and any number of times: that is loss, delay, duplication and reordering at once, without a bound.
Time is a free choice too: whichever deadline comes first, comes first. So the walk needs no budget of
faults, and what it shows holds for every schedule of the configuration.
"""
