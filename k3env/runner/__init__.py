"""Runs of plans on hosts: one conversation with each, and one record of all."""
