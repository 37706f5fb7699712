"""The chart, the image and the infrastructure that are shipped."""
