"""Which adapter serves which port, by the settings. No other module names them."""
