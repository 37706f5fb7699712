"""The console: pages for people, at `/` of every process that has the API.

It shows what the API answers and gives the orders that the API takes, as the caller who is signed in.
"""
