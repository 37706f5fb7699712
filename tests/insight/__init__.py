"""What is known beside the jobs: services and their workers, causes, failures in groups, redrive plans."""
