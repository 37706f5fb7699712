"""The contract as models: bodies, answers, problems, messages, webhooks. All else about it follows from them.

Ids are `jobId` and `stepId`; every other field is snake_case. Instants are RFC 3339 in UTC. Import a model
from its module: this package imports none, so that a client loads what it needs and no more.
"""
