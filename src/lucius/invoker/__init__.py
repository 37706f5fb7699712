"""The internal API of the invoker: what workflows and orchestrators ask of the owner of the ledger."""
