"""The services of the SIGKILL test: three scripted ones that live in the process that is killed."""

from tests.services.scripted import Scripted

alpha = Scripted("ALPHA")
beta = Scripted("BETA")
gamma = Scripted("GAMMA")
