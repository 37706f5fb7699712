"""The packaged services, and a scripted one for tests of everything around it."""
