"""Who may do what, and what a hostile caller, client or address cannot do."""
