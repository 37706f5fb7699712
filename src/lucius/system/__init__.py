"""What every process takes from its machine: logs, traces, counters, folders, outgoing connections."""
