"""For those who build on it: stand-ins, certificate, load, scaffold. No production process imports it."""
