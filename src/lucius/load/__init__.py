"""The load: jobs for a server, or directives for one service, at a rate or with a concurrency."""
