"""The certificate: black-box checks of whether a platform service keeps the contract."""
