"""`isolation = "process"`: `execute()` in child processes with limits, supervised from the event loop.

The server never forks itself: it has threads. It starts one small process (`__main__`), which imports
the services and forks the children. A child reaches objects only by asking (`child`), and the parent
answers as the job's own task would (`pool`). What a child says is read as data, never as code.
"""
