"""What runs the jobs: ingress, and the engines behind the engine port."""
