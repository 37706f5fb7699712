"""Tests of the command line and of the client that it uses."""
