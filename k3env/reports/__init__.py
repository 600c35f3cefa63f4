"""An outcome as text: pure functions from values to what is printed or stored."""
