"""The Temporal engine: a workflow has the sequence and the time of a job, the invoker its rows."""
