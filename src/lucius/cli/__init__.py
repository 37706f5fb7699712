"""The command `lucius`. Heavy imports happen inside commands, so that help is quick."""
