"""The composition root: builds what a process needs from its settings, and runs it.

Import from the module that has it: a process loads only what it runs.
"""
