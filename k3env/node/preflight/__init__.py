"""The check that travels as one file, k3env-preflight.pyz: its command line, its bundle of plans, its verdict."""
