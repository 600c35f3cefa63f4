"""The words that the controller and a node both speak."""
