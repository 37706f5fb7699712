"""The adapters: one folder a port, one file or folder a technology. None knows another."""
