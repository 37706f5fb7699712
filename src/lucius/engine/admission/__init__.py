"""A command becomes a plan: envelope, payload rules, reference policy, sizes, and the faults of each."""
